package live

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Paths of the pages.
const (
	PathLive           = "/healthz"
	PathReady          = "/readyz"
	PathLeaderElection = "/healthz/leader-election" // the sidecars' name
	PathDriver         = "/healthz/driver"
)

// Handlers returns the pages, for telemetry.Page. lease may be nil. It returns an
// error if the work continues although the lease is lost (lease.State.Check).
func (h *Health) Handlers(lease func() error) map[string]http.Handler {
	if lease == nil {
		lease = func() error { return nil }
	}
	return map[string]http.Handler{
		PathLive:           page(h.Live),
		PathReady:          http.HandlerFunc(h.serveReady),
		PathDriver:         h.DriverHandler(),
		PathLeaderElection: page(func(context.Context) (string, error) { return "", lease() }),
	}
}

// DriverHandler returns livenessprobe's page: 200 if the driver's Probe reports
// that it is ready, else 500 with the reason.
func (h *Health) DriverHandler() http.Handler { return page(h.Driver) }

func (h *Health) serveReady(w http.ResponseWriter, r *http.Request) {
	report, ready := h.Ready(r.Context())
	if ready {
		respond(w, http.StatusOK, "ok\n"+report)
		return
	}
	respond(w, http.StatusServiceUnavailable, "not ready\n"+report)
}

// page responds with 200, "ok" and the words, or with 500 and the error.
func page(check func(context.Context) (words string, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		words, err := check(r.Context())
		switch {
		case err != nil:
			respond(w, http.StatusInternalServerError, err.Error()+"\n")
		case words != "":
			respond(w, http.StatusOK, "ok\n"+words+"\n")
		default:
			respond(w, http.StatusOK, "ok\n")
		}
	})
}

func respond(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// A client that left does not need the answer.
	_, _ = io.WriteString(w, text)
}

// Moving is a vital that fails if all workers of a queue have been busy for longer
// than the limit and none has finished a key. The limit must be far above the
// timeout of a call to the driver.
func Moving(queues interface {
	Stuck() (name string, since time.Duration)
}, limit time.Duration) Vital {
	return Vital{Name: "queues", Test: func() error {
		if name, since := queues.Stuck(); since > limit {
			return fmt.Errorf("no worker of queue %s has finished a key for %v", name, round(since))
		}
		return nil
	}}
}

// Lease is the fact of the lease. A leader and a standby are both ready, and so is a
// process that lost the lease, until its work has ended.
func Lease(state fmt.Stringer) Fact {
	return Fact{Name: "lease", Describe: func() (string, error) { return state.String(), nil }}
}
