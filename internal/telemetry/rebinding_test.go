package telemetry

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
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
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	short, _, _ := strings.Cut(own, ".")
	for host, want := range map[string]int{
		address: http.StatusOK, own: http.StatusOK, short + ":80": http.StatusOK, "localhost": http.StatusOK, "LOCALHOST.:80": http.StatusOK, "[::1]:1": http.StatusOK,
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
	if code := served("node.example:1", net.IPv4(10, 0, 0, 1), "any.example"); code != http.StatusNotFound {
		t.Errorf("it answers %d", code)
	}
}

// The name of an address that an administrator has configured may lead to a loopback
// address, as Debian's /etc/hosts does with the machine's name.
func TestWithoutRebinding_acceptsTheConfiguredName(t *testing.T) {
	for host, want := range map[string]int{
		"node.example:9": http.StatusNotFound, "NODE.example.": http.StatusNotFound,
		"other.node.example": http.StatusForbidden, "node": http.StatusForbidden,
	} {
		if code := served("Node.example:9", net.IPv4(127, 0, 1, 1), host); code != want {
			t.Errorf("as %s it answers %d; want %d", host, code, want)
		}
	}
}

// served is the answer to a request for a host at a bound address; 404 passed the guard.
func served(configured string, bound net.IP, host string) int {
	request, answer := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
	request.Host = host
	withoutRebinding(configured, &net.TCPAddr{IP: bound}, http.NotFoundHandler()).ServeHTTP(answer, request)
	return answer.Code
}
