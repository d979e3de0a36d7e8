package server

import (
	"fmt"
	"net/http"
	"strings"
)

// Handlers are the handlers of /healthz and /readyz. /healthz always succeeds: a proxy
// that waits for the pipes of another proxy must not be restarted. /readyz succeeds if
// each pipe is served by this process or another, and one by this process.
func (s *Server) Handlers() map[string]http.Handler {
	return map[string]http.Handler{
		"/healthz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { s.report(w, http.StatusOK) }),
		"/readyz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			code := http.StatusServiceUnavailable
			if served, taken := s.count(Served), s.count(Taken); served > 0 && served+taken == len(s.pipes) {
				code = http.StatusOK
			}
			s.report(w, code)
		}),
	}
}

// report writes the states of the pipes.
func (s *Server) report(w http.ResponseWriter, code int) {
	var text strings.Builder
	for _, status := range s.Pipes() {
		fmt.Fprintf(&text, "%s: %s", status.Pipe, status.State)
		switch status.State {
		case Taken:
			fmt.Fprintf(&text, " by %s", status.Owner)
		case Failed:
			fmt.Fprintf(&text, ": %v", status.Error)
		case Unknown:
			text.WriteString("not probed yet")
		}
		text.WriteString("\n")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text.String()))
}
