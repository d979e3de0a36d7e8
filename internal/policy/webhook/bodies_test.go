package webhook

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Each host has its share of the bodies that arrive at once; another host's review is
// answered meanwhile, and the first host's own when its other reviews are.
func TestBodies_leaveRoomForOtherHosts(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	b := &bodies{byHost: map[string]int64{}}
	handler := b.limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			entered <- struct{}{}
			<-leave
		}
	}))
	ask := func(host, path string, length int64) int {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("x"))
		request.RemoteAddr, request.ContentLength = host+":1", length
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		return recorder.Code
	}
	answers := make(chan int)
	hold := func(host string) {
		go func() { answers <- ask(host, "/held", -1) }() // of unknown length
		<-entered
	}
	for range mostOfHost / largest {
		hold("10.0.0.1")
	}
	if code := ask("10.0.0.1", "/", 1); code != http.StatusServiceUnavailable {
		t.Errorf("more than the share of a host: %d", code)
	}
	if code := ask("10.0.0.2", "/", 1<<40); code != http.StatusOK {
		t.Errorf("another host: %d", code)
	}
	for i := range mostBodies/largest - mostOfHost/largest {
		hold(fmt.Sprint("10.0.1.", i))
	}
	if code := ask("10.0.0.3", "/", 1); code != http.StatusServiceUnavailable {
		t.Errorf("more than all: %d", code)
	}
	for range mostBodies / largest {
		leave <- struct{}{}
		if code := <-answers; code != http.StatusOK {
			t.Errorf("a review that was held: %d", code)
		}
	}
	if code := ask("10.0.0.1", "/", 1); code != http.StatusOK || b.all != 0 || len(b.byHost) != 0 {
		t.Errorf("afterwards: %d, %d bytes of %v", code, b.all, b.byHost)
	}
}
