package telemetry

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestProfiles_areServedOnLoopbackOnly(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:6060": "", "127.8.0.1:0": "", "[::1]:6060": "", "localhost:6060": "",
		":6060": "not a loopback address", "0.0.0.0:6060": "not a loopback address", "[::]:6060": "not a loopback address",
		"10.0.0.1:6060": "use 127.0.0.1:6060", "localhost.example.com:6060": "not a loopback address",
		"127.0.0.1": "not an address with a port", "6060": "not an address with a port",
	} {
		err := Profiles{Address: address}.Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
	}
	if err := (Profiles{Address: "0.0.0.0:0", Logger: slog.New(slog.DiscardHandler)}).Run(t.Context()); err == nil {
		t.Error("it serves on all addresses")
	}
}

func TestProfiles_haveTheirOwnServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	bound, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		done <- Profiles{Address: "localhost:0", Logger: slog.New(slog.DiscardHandler), Listening: func(a net.Addr) { bound <- a }}.Run(ctx)
	}()
	address := "http://" + (<-bound).String() + "/debug/pprof/"
	for page, want := range map[string]string{"": "goroutine", "heap?debug=1": "heap profile", "goroutine?debug=2": "profiles_test.go", "cmdline": "telemetry"} {
		if code, body := get(t, address+page); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s answers %d %.80q", page, code, body)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if code, _ := get(t, open(t, nil)+"/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("the page of metrics answers %d for profiles", code)
	}
}
