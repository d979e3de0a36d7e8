package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/proxytest"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"
)

const pipeV1 = `\\.\pipe\csi-proxy-v1`

// serving is a server of one version, and a way to call it.
type serving struct {
	*running
	pipes *proxytest.Pipes
}

func serve(t *testing.T, limits server.Limits, registerer prometheus.Registerer, do operation) *serving {
	t.Helper()
	pipes := proxytest.NewPipes()
	return &serving{start(t, server.Options{
		Versions: []api.Definition{echo("", "v1", do)}, Transport: pipes.As(ours()), Limits: limits, Registerer: registerer,
	}), pipes}
}

func (s *serving) call(t *testing.T, text string) (string, error) {
	t.Helper()
	return call(t.Context(), dialer(s.pipes.Dial).connect(t, pipeV1), "v1", text)
}

// Errors have codes.
func TestCall_mapsEachSentinelToItsCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want codes.Code
	}{
		{backend.ErrInvalid, codes.InvalidArgument},
		{backend.ErrNotFound, codes.NotFound},
		{backend.ErrExists, codes.AlreadyExists},
		{backend.ErrBusy, codes.Aborted},
		{backend.ErrInUse, codes.FailedPrecondition},
		{backend.ErrPrecondition, codes.FailedPrecondition},
		{backend.ErrNoSpace, codes.ResourceExhausted},
		{backend.ErrOutOfRange, codes.OutOfRange},
		{backend.ErrUnsupported, codes.Unimplemented},
		{backend.ErrUnavailable, codes.Unavailable},
		{backend.ErrDenied, codes.PermissionDenied},
		{backend.ErrCredentials, codes.Unauthenticated},
		{backend.ErrDataLoss, codes.DataLoss},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{errBroken, codes.Internal},
		{status.Error(codes.OutOfRange, "a status"), codes.OutOfRange},
		{errors.New(""), codes.Internal},
	} {
		s := serve(t, quick(), nil, func(context.Context, string) (string, error) {
			if c.err.Error() == "" {
				return "", c.err
			}
			return "", fmt.Errorf("the step: %w: ERROR_DIR_NOT_EMPTY (145)", c.err)
		})
		_, err := s.call(t, "")
		if got := status.Convert(err); got.Code() != c.want || got.Message() == "" {
			t.Errorf("%v is answered as %v, %q; want %v", c.err, got.Code(), got.Message(), c.want)
		}
	}
}

// One bad request does not end the process.
func TestCall_survivesAPanic(t *testing.T) {
	s := serve(t, quick(), nil, func(_ context.Context, text string) (string, error) {
		if text == "bad" {
			var nothing *int
			_ = *nothing
		}
		return text, nil
	})
	for range 3 {
		if _, err := s.call(t, "bad"); status.Code(err) != codes.Internal {
			t.Errorf("a panic is answered with %v", err)
		}
	}
	if answer, err := s.call(t, "good"); err != nil || answer != "good" {
		t.Errorf("after a panic a call answers %q, %v", answer, err)
	}
	if log := s.log.String(); !contains(log, "panic in a call", "nil pointer", "calls_test.go") {
		t.Errorf("the log does not have the stack: %s", log)
	}
}

// A call ends at the proxy's own limit, also when the operation
// hangs, and says so.
func TestCall_endsAfterItsOwnLimit(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	limits := quick()
	limits.Call = 30 * time.Millisecond
	for name, do := range map[string]operation{
		"that watches its context": func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "", fmt.Errorf("waiting for a volume: %w", ctx.Err())
		},
		"that returns its cause": func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "", fmt.Errorf("waiting for a volume: %w", context.Cause(ctx))
		},
		"that hangs": func(context.Context, string) (string, error) {
			<-release
			return "", nil
		},
	} {
		_, err := serve(t, limits, nil, do).call(t, "")
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("an operation %s ends with %v", name, err)
		}
		if name == "that hangs" && !strings.Contains(err.Error(), "own limit") {
			t.Errorf("the error does not say whose limit it was: %v", err)
		}
	}
}

// An operation that hangs is answered, but keeps its turn: the threads of the
// process are bounded.
func TestCall_whatHangsKeepsItsTurn(t *testing.T) {
	release, running := make(chan struct{}), atomic.Int32{}
	limits := quick()
	limits.Call, limits.Calls = 40*time.Millisecond, 2
	s := serve(t, limits, nil, func(context.Context, string) (string, error) {
		running.Add(1)
		<-release
		return "", nil
	})
	// On a slow machine the time of a call may be over before its turn comes.
	for rounds := 0; rounds == 0 || running.Load() < 2; rounds++ {
		var calls sync.WaitGroup
		for range 6 {
			calls.Go(func() {
				if _, err := s.call(t, ""); status.Code(err) != codes.DeadlineExceeded {
					t.Errorf("a call that hangs ends with %v", err)
				}
			})
		}
		calls.Wait()
	}
	if n := running.Load(); n != 2 {
		t.Errorf("%d operations run, and 2 may", n)
	}
	close(release)
	until(t, "that there are turns again", func() bool {
		_, err := s.call(t, "")
		return err == nil
	})
}

// A call is cancelled when its client vanishes.
func TestCall_isCancelledWhenItsClientVanishes(t *testing.T) {
	begun, cancelled := make(chan struct{}), make(chan struct{})
	s := serve(t, quick(), nil, func(ctx context.Context, _ string) (string, error) {
		close(begun)
		<-ctx.Done()
		close(cancelled)
		return "", ctx.Err()
	})
	connection := dialer(s.pipes.Dial).connect(t, pipeV1)
	go func() { _, _ = call(t.Context(), connection, "v1", "") }()
	<-begun
	if err := connection.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-cancelled:
	case <-time.After(time.Minute):
		t.Error("the operation continues")
	}
}

// 64 clients at once, with fewer turns than that: no call fails, and none waits
// for many times as long as others.
func TestCall_64ClientsAllGetTheirTurn(t *testing.T) {
	const clients, each = 64, 20
	limits := quick()
	limits.Calls = 8
	s := serve(t, limits, nil, func(_ context.Context, text string) (string, error) {
		time.Sleep(200 * time.Microsecond)
		return text, nil
	})
	begun := time.Now()
	var all sync.WaitGroup
	slowest := make([]time.Duration, clients)
	for i, connection := range connections(t, s.pipes, clients) {
		all.Go(func() {
			for range each {
				begin := time.Now()
				if _, err := call(t.Context(), connection, "v1", "text"); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
				slowest[i] = max(slowest[i], time.Since(begin))
			}
		})
	}
	all.Wait()
	most := max(10*time.Second, time.Since(begun)/2) // on a slow machine
	for i, took := range slowest {
		if took > most {
			t.Errorf("client %d waited for %v", i, took)
		}
	}
}

// All clients there are want a disk that does not answer: a caller of another
// does not wait for them.
func TestCall_passesThoseThatHang(t *testing.T) {
	release, running := make(chan struct{}), atomic.Int32{}
	s := serve(t, quick(), nil, func(_ context.Context, text string) (string, error) {
		if text == "dead" {
			running.Add(1)
			<-release
		}
		return text, nil
	})
	const clients = 100
	var all sync.WaitGroup
	for _, connection := range connections(t, s.pipes, clients) {
		all.Go(func() { _, _ = call(t.Context(), connection, "v1", "dead") })
	}
	until(t, "that all hang", func() bool { return running.Load() == clients })
	if _, err := s.call(t, "alive"); err != nil {
		t.Error(err)
	}
	close(release)
	all.Wait()
}

// More calls than a connection takes in at once wait in the client.
func TestCall_manyOnOneConnection(t *testing.T) {
	s := serve(t, quick(), nil, same)
	connection := dialer(s.pipes.Dial).connect(t, pipeV1)
	var all sync.WaitGroup
	for range 300 {
		all.Go(func() {
			if _, err := call(t.Context(), connection, "v1", "text"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestCall_refusesAnOverlongMessage(t *testing.T) {
	s := serve(t, quick(), nil, same)
	connection := dialer(s.pipes.Dial).connect(t, pipeV1)
	if _, err := call(t.Context(), connection, "v1", strings.Repeat("x", 65<<10)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("65 KiB are answered with %v", err)
	}
	if _, err := call(t.Context(), connection, "v1", strings.Repeat("x", 63<<10)); err != nil {
		t.Errorf("then 63 KiB on the same connection are answered with %v", err)
	}
}

// A pipe rejects calls of other services, and the error names those that it serves.
func TestCall_ofAnotherVersionIsUnimplemented(t *testing.T) {
	s := serve(t, quick(), nil, same)
	_, err := call(t.Context(), dialer(s.pipes.Dial).connect(t, pipeV1), "v2", "")
	if status.Code(err) != codes.Unimplemented || !contains(err.Error(), "v1.Test", "/v2.Test/Echo") {
		t.Errorf("it is answered with %v", err)
	}
}

func TestCall_isOneLineInTheLog(t *testing.T) {
	s := serve(t, quick(), nil, func(_ context.Context, text string) (string, error) {
		if text == "no" {
			return "", backend.ErrNotFound
		}
		return text, nil
	})
	_, _ = s.call(t, `C:\var\lib\kubelet\x`)
	_, _ = s.call(t, "no")
	var lines []string
	for line := range strings.Lines(s.log.String()) {
		if strings.Contains(line, `"msg":"call"`) {
			lines = append(lines, line)
		}
	}
	if len(lines) != 2 {
		t.Fatalf("two calls have %d lines: %s", len(lines), s.log)
	}
	if !contains(lines[0], `"rpc":"v1.Test/Echo"`, `"pipe":"\\\\.\\pipe\\csi-proxy-v1"`, `"pid":4711`, `client.exe`, `C:\\var\\lib\\kubelet\\x`, `"duration"`, `"code":"OK"`, `"level":"INFO"`) {
		t.Errorf("the line of a good call is %s", lines[0])
	}
	if !contains(lines[1], `"code":"NotFound"`, `"error":"not found"`, `"level":"WARN"`) {
		t.Errorf("the line of a failed call is %s", lines[1])
	}
}

func TestCaller_isKnownToTheOperation(t *testing.T) {
	s := serve(t, quick(), nil, func(ctx context.Context, _ string) (string, error) {
		caller, known := server.Caller(ctx)
		return fmt.Sprint(known, caller.ID), nil
	})
	if answer, err := s.call(t, ""); err != nil || answer != "true 4711" {
		t.Errorf("the operation knows of its caller: %q, %v", answer, err)
	}
}

func TestMetrics_countCallsAndPipes(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := serve(t, quick(), registry, func(_ context.Context, text string) (string, error) {
		if text == "no" {
			return "", backend.ErrNotFound
		}
		return text, nil
	})
	for _, text := range []string{"yes", "yes", "no"} {
		_, _ = s.call(t, text)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			fmt.Fprintf(&text, "%s %v\n", family.GetName(), metric)
		}
	}
	for _, want := range []string{
		"csi_proxy_calls_total", "NotFound", "csi_proxy_call_seconds", "csi_proxy_pipe_state", "csi_proxy_calls_in_flight",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the metrics do not have %s", want)
		}
	}
}
