package ec2emu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// Control is the control interface: JSON over HTTP, and the metrics page. Serve it on a
// separate port, because the EC2 endpoint must not have it.
func (s *Server) Control() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collector())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /{$}", s.index)
	for pattern, handle := range s.routes() {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			sent, ok := body(w, r)
			if !ok {
				return
			}
			answer, err := handle(r, sent)
			if err != nil {
				problem(w, statusOf(err), err)
				return
			}
			reply(w, answer)
		})
	}
	return mux
}

// ServeControl serves Control on the listener until ctx ends, and closes it.
func (s *Server) ServeControl(ctx context.Context, listener net.Listener) error {
	return serve(ctx, listener, s.Control(), s.logger)
}

// route handles a control call with its body, and returns a value to encode as JSON.
type route func(r *http.Request, sent []byte) (any, error)

// mistake is an error of the caller.
type mistake struct {
	status int
	error
}

func (m *mistake) Unwrap() error { return m.error }

func wrong(format string, arguments ...any) error {
	return &mistake{http.StatusBadRequest, fmt.Errorf(format, arguments...)}
}

func unknown(format string, arguments ...any) error {
	return &mistake{http.StatusNotFound, fmt.Errorf(format, arguments...)}
}

func statusOf(err error) int {
	if m := (*mistake)(nil); errors.As(err, &m) {
		return m.status
	}
	if refused := (*world.Error)(nil); errors.As(err, &refused) {
		if strings.HasSuffix(refused.Code, ".NotFound") {
			return http.StatusNotFound
		}
		return refused.Status
	}
	return http.StatusInternalServerError
}

// index lists the routes.
func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	lines := append(sortedKeys(s.routes()), "GET /metrics")
	plain(w, strings.Join(lines, "\n")+"\n")
}

func (s *Server) routes() map[string]route {
	return map[string]route{
		"GET /statistics": func(*http.Request, []byte) (any, error) { return s.Statistics(), nil },
		"DELETE /statistics": func(*http.Request, []byte) (any, error) {
			s.Reset()
			return s.Statistics(),
				nil
		},
		"GET /journal":        s.controlJournal,
		"GET /knobs":          func(*http.Request, []byte) (any, error) { return s.AllKnobs(), nil },
		"PATCH /knobs":        s.controlKnobs,
		"GET /faults":         func(*http.Request, []byte) (any, error) { return s.Faults(), nil },
		"POST /faults":        s.controlAddFault,
		"DELETE /faults":      s.controlRemoveFault,
		"DELETE /faults/{id}": s.controlRemoveFault,
		"GET /volume-faults": func(*http.Request, []byte) (any, error) {
			return orEmpty(s.world.Faults()),
				nil
		},
		"POST /volume-faults":           s.controlAddVolumeFault,
		"DELETE /volume-faults":         s.controlRemoveVolumeFault,
		"DELETE /volume-faults/{id}":    s.controlRemoveVolumeFault,
		"GET /clock":                    func(*http.Request, []byte) (any, error) { return s.clock(), nil },
		"POST /clock":                   s.controlAdvance,
		"GET /instances":                s.controlInstances,
		"POST /instances":               s.controlRunInstance,
		"POST /instances/{id}/{change}": s.controlInstance,
		"GET /retained": func(*http.Request, []byte) (any, error) {
			return orEmpty(s.world.Retained()),
				nil
		},
		"GET /audit": func(*http.Request, []byte) (any, error) {
			return orEmpty(s.world.Audit()),
				nil
		},
		"POST /volumes/{id}/{change}":   s.controlVolume,
		"POST /snapshots":               s.controlForeignSnapshot,
		"POST /snapshots/{id}/{change}": s.controlSnapshot,
	}
}

func (s *Server) controlJournal(r *http.Request, _ []byte) (any, error) {
	text := r.URL.Query().Get("after")
	if text == "" {
		text = "0"
	}
	after, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, wrong("after=%s: want the number of a call", text)
	}
	return orEmpty(s.Journal(after)), nil
}

func (s *Server) controlKnobs(_ *http.Request, sent []byte) (any, error) {
	s.patching.Lock()
	defer s.patching.Unlock()
	changed, err := s.AllKnobs().Patched(sent)
	if err == nil {
		err = s.SetAllKnobs(changed)
	}
	if err != nil {
		return nil, wrong("%w", err)
	}
	return s.AllKnobs(), nil
}

func (s *Server) controlAddFault(_ *http.Request, sent []byte) (any, error) {
	var f Fault
	err := strictJSON(sent, &f)
	if err == nil {
		f, err = s.AddFault(f)
	}
	if err != nil {
		return nil, wrong("%w", err)
	}
	return f, nil
}

func (s *Server) controlRemoveFault(r *http.Request, _ []byte) (any, error) {
	id := r.PathValue("id")
	if s.RemoveFault(id) == 0 && id != "" {
		return nil, unknown("there is no fault %s", id)
	}
	return s.Faults(), nil
}

func (s *Server) controlAddVolumeFault(_ *http.Request, sent []byte) (any, error) {
	var f world.Fault
	err := strictJSON(sent, &f)
	if err == nil {
		f.ID, err = s.world.AddFault(f)
	}
	if err != nil {
		return nil, wrong("%w", err)
	}
	return f, nil
}

func (s *Server) controlRemoveVolumeFault(r *http.Request, _ []byte) (any, error) {
	id := 0 // all
	if text := r.PathValue("id"); text != "" {
		var err error
		if id, err = strconv.Atoi(text); err != nil || id < 1 {
			return nil, unknown("there is no volume fault %s", text)
		}
	}
	s.world.RemoveFault(id)
	return orEmpty(s.world.Faults()), nil
}

type clockView struct {
	Now time.Time `json:"now"`
}

func (s *Server) clock() clockView { return clockView{Now: s.now()} }

func (s *Server) controlAdvance(_ *http.Request, sent []byte) (any, error) {
	var move struct {
		Advance world.Span `json:"advance"`
	}
	if err := strictJSON(sent, &move); err != nil {
		return nil, wrong("%w", err)
	}
	if move.Advance <= 0 {
		return nil, wrong("advance must be above 0: time does not go back")
	}
	if err := s.world.Advance(time.Duration(move.Advance)); err != nil {
		return nil, err
	}
	return s.clock(), nil
}

// orEmpty makes a nil list [] in JSON, not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
