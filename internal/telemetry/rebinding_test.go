package telemetry

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A page of another site must not read what is served on a loopback address.
func TestServer_refusesOtherNamesOnLoopback(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	bound, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		done <- Profiles{Address: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), Listening: func(a net.Addr) { bound <- a }}.Run(ctx)
	}()
	address := (<-bound).String()
	for host, want := range map[string]int{
		address: http.StatusOK, "localhost": http.StatusOK, "LOCALHOST.:80": http.StatusOK, "[::1]:1": http.StatusOK,
		"evil.example": http.StatusForbidden, "localhost.evil.example:80": http.StatusForbidden, "10.0.0.1": http.StatusForbidden,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/debug/pprof/cmdline", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("as %s it answers %d; want %d", host, answer.StatusCode, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWithoutRebinding_otherAddressesHaveAnyName(t *testing.T) {
	answer := httptest.NewRecorder()
	withoutRebinding(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, http.NotFoundHandler()).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://node.example/", nil))
	if answer.Code != http.StatusNotFound {
		t.Errorf("it answers %d", answer.Code)
	}
}
