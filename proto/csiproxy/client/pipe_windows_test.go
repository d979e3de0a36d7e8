package client

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/proto/csiproxy"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

// serve runs a proxy on the machine's own pipes.
func serve(t *testing.T) {
	t.Helper()
	transport, err := server.NewTransport()
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(server.Options{
		Versions: csiproxy.Versions(), Host: groupstest.Answering().Host(), Transport: transport, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	for _, status := range s.Pipes() {
		if status.State != server.Served {
			t.Fatalf("%s: %v %v", status.Pipe, status.State, status.Error)
		}
	}
}

// The client finds the proxy on Windows' pipes, and its own process is an
// administrator's where that can be asked.
func TestDial_pipesOfWindows(t *testing.T) {
	if _, err := Dial(t.Context(), Options{}); !errors.Is(err, ErrNoProxy) {
		t.Fatalf("before there is a proxy: %v", err)
	}
	serve(t)
	for _, check := range []ServerCheck{CheckIfPossible, CheckAlways, CheckNever} {
		proxy, err := Dial(t.Context(), Options{Server: check})
		if err != nil {
			t.Errorf("check %d: %v", check, err)
			continue
		}
		if _, err := proxy.Rescan(t.Context(), &v1.RescanRequest{}); err != nil || proxy.Version() != "v1" {
			t.Errorf("check %d: %q, %v", check, proxy.Version(), err)
		}
		_ = proxy.Close()
	}
}

func TestListPipes_hasThoseOfTheProxy(t *testing.T) {
	serve(t)
	names, err := listPipes()
	if err != nil && win32.UnderWine() {
		t.Skipf("wine lists no pipes: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"csi-proxy-v1", "csi-proxy-v1beta1", "csi-proxy-v1alpha1"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %q", want, names)
		}
	}
}

func TestDialPipe_missingIsNotExist(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := dialPipe(ctx, `\\.\pipe\csi-proxy-v99`, CheckIfPossible); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestServerOf_connectionWithoutAHandle(t *testing.T) {
	one, other := net.Pipe()
	defer func() { _, _ = one.Close(), other.Close() }()
	if trusted, _, err := serverOf(one); trusted || err == nil {
		t.Error("a connection that is not a pipe is trusted")
	}
}
