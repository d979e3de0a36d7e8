package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

// A restarted proxy is found by the very next call.
func TestReconnect_afterARestart(t *testing.T) {
	n := newNode(t)
	stop := n.run(only("v1")...)
	proxy, err := client.Dial(t.Context(), n.plugin("v1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = proxy.Close() }()
	for round := range 5 {
		stop()
		if round%2 == 0 { // another call asks meanwhile
			_, err := proxy.Rescan(t.Context(), &v1.RescanRequest{})
			checkError(t, err, client.ErrNoProxy, nil)
		}
		stop = n.run(only("v1")...)
		if _, err := proxy.Rescan(t.Context(), &v1.RescanRequest{}); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
}

// Calls at once share one connection, also when it must be found first.
func TestClient_manyCallsAtOnce(t *testing.T) {
	n := newNode(t)
	proxy, err := client.New(n.plugin(""))
	if err != nil {
		t.Fatal(err)
	}
	n.run(only("v1")...)
	failures := make(chan error)
	for range 64 {
		go func() {
			_, err := proxy.PathExists(t.Context(), &v1.PathExistsRequest{Path: "x"})
			failures <- err
		}()
	}
	for range 64 {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
	if n.dialled != 1 {
		t.Errorf("%d connections", n.dialled)
	}
	_ = proxy.Close()
	if _, err := proxy.Rescan(t.Context(), &v1.RescanRequest{}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := proxy.Check(t.Context()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A pipe that another process serves is not csi-proxy's, and the error says so.
func TestDial_refusesAPipeOfAnotherProcess(t *testing.T) {
	n := newNode(t)
	wrong := groupPipes()[0]
	wrong.Group, wrong.Version = "", "v1"
	n.run(wrong)
	_, err := client.Dial(t.Context(), n.plugin("v1"))
	checkError(t, err, client.ErrServer, []string{`\\.\pipe\csi-proxy-v1`, "lacks the service"})
	if left := n.connections(0); left != nil {
		t.Error(left)
	}
	n.run(only("v1beta1")...)
	proxy, err := client.Dial(t.Context(), n.plugin("v1beta1"))
	if err != nil || proxy.Version() != "v1beta1" {
		t.Errorf("the next version: %v", err)
	}
}

// A process that serves the pipe and does not answer does not block a caller without end.
func TestDial_endsWithItsContext(t *testing.T) {
	n := newNode(t)
	n.pipes.Take(`\\.\pipe\csi-proxy-v1`, server.Process{ID: 7})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := client.Dial(ctx, n.plugin("v1")) // by itself it ends with another error
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// Nor does he one who waits for as long as it takes.
func TestDial_givesUpOnAPipeThatSaysNothing(t *testing.T) {
	n := newNode(t)
	n.pipes.Take(`\\.\pipe\csi-proxy-v1`, server.Process{ID: 7})
	start := time.Now()
	_, err := client.Dial(t.Context(), n.plugin("v1"))
	checkError(t, err, client.ErrNoProxy, []string{`\\.\pipe\csi-proxy-v1`})
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	if left := n.connections(0); left != nil {
		t.Error(left)
	}
}

// A proxy whose calls wait in line is one all the same.
func TestDial_waitsForABusyProxy(t *testing.T) {
	n := newNode(t)
	n.slow = make(chan struct{})
	n.run(only("v1")...)
	first, err := client.Dial(t.Context(), n.plugin("v1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	ended := make(chan error)
	go func() {
		_, err := first.Rescan(t.Context(), &v1.RescanRequest{})
		ended <- err
	}()
	n.slow <- struct{}{} // the one call that this proxy does at a time has begun
	dialled := make(chan error)
	go func() {
		second, err := client.Dial(t.Context(), n.plugin("v1"))
		if err == nil {
			err = second.Close()
		}
		dialled <- err
	}()
	select {
	case err := <-dialled:
		t.Errorf("before the first call ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(n.slow)
	for _, result := range []chan error{ended, dialled} {
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
}

// A client that the pipe's security descriptor does not admit gets that error, and
// does not try an older version, which would not admit it either.
func TestDial_deniedIsNeitherMissingNorAnotherVersion(t *testing.T) {
	options := client.Options{Dialer: func(context.Context, string) (net.Conn, error) {
		return nil, fmt.Errorf("open: %w", fs.ErrPermission)
	}}
	_, err := client.Dial(t.Context(), options)
	checkError(t, err, nil, []string{`\\.\pipe\csi-proxy-v1:`})
	if !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}

func TestNew_refusesVersionsThatItDoesNotKnow(t *testing.T) {
	for _, oldest := range []string{"v2", "v1x", "1"} {
		if _, err := client.New(client.Options{Oldest: oldest}); err == nil {
			t.Errorf("%s is accepted", oldest)
		}
	}
}

// Errors of the proxy come as they are.
func TestClient_givesTheProxysCodes(t *testing.T) {
	n := newNode(t)
	n.run(only("v1")...)
	proxy, err := client.Dial(t.Context(), n.plugin("v1"))
	if err != nil {
		t.Fatal(err)
	}
	n.machine.Err = fs.ErrInvalid
	if _, err = proxy.Rescan(t.Context(), &v1.RescanRequest{}); status.Code(err) != codes.Internal || proxy.Version() != "v1" {
		t.Error(err)
	}
}

// The proxy's process dies during a call: gRPC reports only the end of the connection.
func TestReconnect_duringACall(t *testing.T) {
	for _, c := range []struct {
		name     string
		returns  bool // the proxy runs again at once
		fails    error
		mentions []string
	}{
		{name: "the proxy returns", returns: true},
		{name: "the proxy does not return", fails: client.ErrNoProxy, mentions: []string{"start the csi-proxy service"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.slow = make(chan struct{})
			n.run(only("v1")...)
			var missing atomic.Bool
			options := n.plugin("v1")
			options.Dialer = func(ctx context.Context, pipe string) (net.Conn, error) {
				if missing.Load() {
					return nil, fs.ErrNotExist
				}
				return n.dial(ctx, pipe)
			}
			options.Pipes = func() ([]string, error) { return nil, nil }
			proxy, err := client.Dial(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = proxy.Close() }()
			result := make(chan error, 1)
			go func() {
				_, err := proxy.Rescan(t.Context(), &v1.RescanRequest{})
				result <- err
			}()
			n.slow <- struct{}{} // the call runs
			missing.Store(!c.returns)
			n.cut()
			if !c.returns {
				checkError(t, <-result, c.fails, c.mentions)
				close(n.slow)
				return
			}
			close(n.slow)
			if err := <-result; err != nil {
				t.Errorf("the repeated call: %v", err)
			}
		})
	}
}
