package api

import (
	"net/http"
	"runtime/pprof"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// goroutines answers with the stack of each goroutine, for who may do everything: paths in
// it may be of other users.
func (s *Server) goroutines(w http.ResponseWriter, r *http.Request) error {
	if from, err := peerFrom(r.Context()); err != nil || s.options.accessOf(from) != everything {
		return refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "goroutines are for users who may apply")
	}
	out := newStream(w, "text/plain")
	_ = pprof.Lookup("goroutine").WriteTo(out, 2) // the client may be gone
	return nil
}
