package status

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// A page that is not kept current says so, until it is again.
func TestMirror_saysThatTheConnectionIsLost(t *testing.T) {
	m := newMirror()
	view := View{mirror: m}
	pods, claims := resource{kind: kindPod}, resource{kind: kindClaim}
	m.lost(kindPod)
	if problems := view.Problems(); len(problems) != 0 {
		t.Errorf("before it is read: %q", problems)
	}
	m.failed(pods, errors.New("no route"))
	if problems := view.Problems(); len(problems) != 1 {
		t.Errorf("a kind that cannot be read: %q", problems)
	}
	m.replace(kindPod, nil)
	m.replace(kindClaim, nil)
	if problems := view.Problems(); len(problems) != 0 {
		t.Errorf("after it was read: %q", problems)
	}
	m.lost(kindPod)
	m.failed(claims, errors.New("connection refused"))
	if problems := view.Problems(); len(problems) != 1 || !m.ready([]string{kindPod, kindClaim}) {
		t.Errorf("two kinds that are not current: %q, want one sentence", problems)
	}
	m.recovered(kindPod)
	m.recovered(kindClaim)
	if problems := view.Problems(); len(problems) != 0 || !m.current(kindPod) {
		t.Errorf("after the watches began again: %q", problems)
	}
}

// What could not be read for a time is no problem any more when it is read again.
func TestHost_problemsEnd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	client := api.Dial(socket)
	defer client.Close()
	host, err := NewHost(client, "m")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	m, done := newMirror(), make(chan struct{})
	view := View{mirror: m, source: host}
	go func() {
		host.followDrivers(ctx, m)
		close(done)
	}()
	defer func() {
		cancel()
		<-done
	}()
	until := func(what string, holds func() bool) {
		for {
			changed := m.Changed()
			if holds() {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("not seen: %s; the problems are %q", what, view.Problems())
			}
		}
	}
	until("the problem", func() bool { return len(view.Problems()) == 1 })
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode([]api.Driver{{Name: "d.example"}}) // the test sees that it lacks
	})}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	until("the driver", func() bool {
		return slices.ContainsFunc(view.Drivers(), func(d Driver) bool { return d.Name == "d.example" })
	})
	until("the end of the problem", func() bool { return len(view.Problems()) == 0 })
}
