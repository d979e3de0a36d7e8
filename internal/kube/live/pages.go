package live

import (
	"context"
	"errors"
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

// Handlers are the pages, for telemetry.Page. lease may be nil: it fails when
// the work goes on although the lease is gone (lease.State.Check).
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

// DriverHandler is the page of livenessprobe: 200 when the driver's Probe says
// that it is ready, else 500 with the reason.
func (h *Health) DriverHandler() http.Handler { return page(h.Driver) }

func (h *Health) serveReady(w http.ResponseWriter, r *http.Request) {
	report, ready := h.Ready(r.Context())
	if ready {
		say(w, http.StatusOK, "ok\n"+report)
		return
	}
	say(w, http.StatusServiceUnavailable, "not ready\n"+report)
}

// page answers 200 "ok" and the words, or 500 and the error.
func page(tell func(context.Context) (words string, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		words, err := tell(r.Context())
		switch {
		case err != nil:
			say(w, http.StatusInternalServerError, err.Error()+"\n")
		case words != "":
			say(w, http.StatusOK, "ok\n"+words+"\n")
		default:
			say(w, http.StatusOK, "ok\n")
		}
	})
}

func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// A client that left does not need the answer.
	_, _ = io.WriteString(w, text)
}

// Moving is a vital that fails when all workers of a queue have been busy for
// longer than the limit without one of them coming to an end. The limit must be
// far above what a call of the driver may take.
func Moving(queues interface {
	Stuck() (name string, since time.Duration)
}, limit time.Duration) Vital {
	return Vital{Name: "queues", Test: func() error {
		if name, since := queues.Stuck(); since > limit {
			return fmt.Errorf("no worker of queue %s has come to an end for %v", name, round(since))
		}
		return nil
	}}
}

// Caches is a fact about the informers: ready once they are filled.
func Caches(set interface{ Synced() bool }) Fact {
	return Fact{Name: "caches", Tell: func() (string, error) {
		if !set.Synced() {
			return "", errors.New("not filled yet from the API server")
		}
		return "filled", nil
	}}
}

// Lease is a fact about the lease: a leader and a standby are both ready, and
// so is a process whose work ends because the lease is gone, which is not for long.
func Lease(state interface{ Words() string }) Fact {
	return Fact{Name: "lease", Tell: func() (string, error) { return state.Words(), nil }}
}
