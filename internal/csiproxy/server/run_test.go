package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/proxytest"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"
)

func contains(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// The two processes of the tests.
func ours() server.Process   { return server.Process{ID: 100, Program: `C:\ours.exe`} }
func theirs() server.Process { return server.Process{ID: 200, Program: `C:\theirs.exe`} }

func twoVersions() []api.Definition {
	return []api.Definition{echo("", "v1", same), echo("", "v1beta1", same)}
}

// Each version has its pipe, and the proxy serves those that are free.
func TestRun_servesEveryFreePipe(t *testing.T) {
	pipes := proxytest.NewPipes()
	r := start(t, server.Options{Versions: twoVersions(), Transport: pipes.As(ours())})
	for _, definition := range twoVersions() {
		connection := dialer(pipes.Dial).connect(t, definition.Pipe())
		if answer, err := call(t.Context(), connection, definition.Version, "text"); err != nil || answer != "text" {
			t.Errorf("%s answers %q, %v", definition.Pipe(), answer, err)
		}
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if left := pipes.Owners(); len(left) != 0 {
		t.Errorf("after the end there are pipes: %v", left)
	}
	for name, state := range r.states() {
		if state != server.Stopped {
			t.Errorf("after the end %s is %q", name, state)
		}
	}
}

// The proxy leaves a pipe of another process alone, and serves the others.
// It is an error in the log, once, since that process may pose as the proxy.
func TestRun_leavesATakenPipeToItsOwner(t *testing.T) {
	pipes := proxytest.NewPipes()
	pipes.Take(`\\.\PIPE\CSI-Proxy-v1`, theirs())
	r := start(t, server.Options{Versions: twoVersions(), Transport: pipes.As(ours())})
	if got := r.states(); got["v1"] != server.Taken || got["v1beta1"] != server.Served {
		t.Fatalf("the pipes are %v", got)
	}
	if owner := pipes.Owners()[`\\.\pipe\csi-proxy-v1`]; owner != theirs() {
		t.Errorf("the taken pipe is now %v's", owner)
	}
	time.Sleep(50 * time.Millisecond) // several more polls
	if n := strings.Count(r.log.String(), "another process serves this pipe"); n != 1 {
		t.Errorf("the log says %d times that the pipe is taken", n)
	}
	if !contains(r.log.String(), `"level":"ERROR"`, `"pid":200`, `theirs.exe`) {
		t.Errorf("the log does not name the owner: %s", r.log)
	}
}

// Two processes run at once, each with the pipes that were free. When one of them
// releases a pipe, the other serves it.
func TestRun_sideBySide(t *testing.T) {
	pipes := proxytest.NewPipes()
	old := start(t, server.Options{
		Versions: []api.Definition{echo("", "v1alpha1", same), echo("", "v1", same)}, Transport: pipes.As(theirs()),
	})
	young := start(t, server.Options{Versions: twoVersions(), Transport: pipes.As(ours())})
	want := map[string]server.Process{
		`\\.\pipe\csi-proxy-v1alpha1`: theirs(), `\\.\pipe\csi-proxy-v1`: theirs(), `\\.\pipe\csi-proxy-v1beta1`: ours(),
	}
	if got := pipes.Owners(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("the pipes are owned by %v, want %v", got, want)
	}
	if err := old.end(); err != nil {
		t.Fatal(err)
	}
	until(t, "that the second has taken over v1", func() bool { return young.states()["v1"] == server.Served })
	connection := dialer(pipes.Dial).connect(t, `\\.\pipe\csi-proxy-v1`)
	if answer, err := call(t.Context(), connection, "v1", "text"); err != nil || answer != "text" {
		t.Errorf("the pipe that was taken over answers %q, %v", answer, err)
	}
}

func TestRun_losesARaceForAPipe(t *testing.T) {
	pipes := proxytest.NewPipes()
	pipes.TakeLate(`\\.\pipe\csi-proxy-v1`, theirs())
	r := start(t, server.Options{Versions: twoVersions(), Transport: pipes.As(ours())})
	if got := r.states(); got["v1"] != server.Taken || got["v1beta1"] != server.Served {
		t.Errorf("the pipes are %v", got)
	}
}

func TestRun_triesAFailedPipeAgain(t *testing.T) {
	pipes := proxytest.NewPipes()
	pipes.Fail(`\\.\pipe\csi-proxy-v1`, errBroken)
	r := start(t, server.Options{Versions: twoVersions(), Transport: pipes.As(ours())})
	if got := r.Pipes()[0]; got.State != server.Failed || !errors.Is(got.Error, errBroken) {
		t.Errorf("the pipe is %+v", got)
	}
	pipes.Fail(`\\.\pipe\csi-proxy-v1`, nil)
	until(t, "that the pipe is served", func() bool { return r.states()["v1"] == server.Served })
}

// The proxy creates a broken pipe again, and its connections continue.
func TestRun_makesABrokenPipeAgain(t *testing.T) {
	pipes := proxytest.NewPipes()
	r := start(t, server.Options{Versions: twoVersions(), Transport: pipes.As(ours())})
	before := dialer(pipes.Dial).connect(t, `\\.\pipe\csi-proxy-v1`)
	if _, err := call(t.Context(), before, "v1", ""); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if !pipes.Break(`\\.\pipe\csi-proxy-v1`) {
			t.Fatal("no pipe to break")
		}
		until(t, "that the pipe is there again", func() bool {
			_, there := pipes.Owners()[`\\.\pipe\csi-proxy-v1`]
			return there && r.states()["v1"] == server.Served
		})
	}
	if _, err := call(t.Context(), before, "v1", ""); err != nil {
		t.Errorf("a connection from before answers %v", err)
	}
}

// The process ends for taken pipes only if none is left, and if it is asked to.
func TestRun_endsWhenNothingIsLeftToServe(t *testing.T) {
	for _, c := range []struct {
		taken []string
		ends  bool
	}{
		{[]string{`\\.\pipe\csi-proxy-v1`, `\\.\pipe\csi-proxy-v1beta1`}, true},
		{[]string{`\\.\pipe\csi-proxy-v1`}, false},
		{nil, false},
	} {
		pipes := proxytest.NewPipes()
		for _, name := range c.taken {
			pipes.Take(name, theirs())
		}
		log := &record{}
		made, err := server.New(server.Options{
			Versions: twoVersions(), Transport: pipes.As(ours()), NeedsOne: true, Limits: quick(), Logger: log.logger(),
		})
		if err != nil {
			t.Fatal(err)
		}
		limit := 200 * time.Millisecond
		if c.ends { // by itself
			limit = time.Minute
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err = made.Run(ctx)
		cancel()
		if errors.Is(err, server.ErrNothingServed) != c.ends {
			t.Errorf("with %q taken the server ends with %v", c.taken, err)
		}
		if c.ends && !contains(err.Error(), "2 are taken", "theirs.exe") {
			t.Errorf("the reason names no process: %v", err)
		}
	}
}

func TestRun_makesPipesWithTheirDescriptor(t *testing.T) {
	pipes := proxytest.NewPipes()
	start(t, server.Options{Versions: twoVersions(), Transport: pipes.As(ours()), AllowSIDs: []string{"S-1-5-21-1-2-3-1013"}})
	want := "D:P(A;;GA;;;SY)(A;;GA;;;BA)(A;;GRGW;;;S-1-5-21-1-2-3-1013)"
	if got := pipes.Descriptor(`\\.\pipe\csi-proxy-v1`); got != want {
		t.Errorf("the pipe's descriptor is %s, want %s", got, want)
	}
}

func TestNew_refusesWhatCannotBeServed(t *testing.T) {
	for name, o := range map[string]server.Options{
		"no version":         {},
		"one pipe for two":   {Versions: []api.Definition{echo("", "v1", same), echo("", "v1", same)}},
		"no version's name":  {Versions: []api.Definition{echo("", "one", same)}},
		"everybody admitted": {Versions: twoVersions(), AllowSIDs: []string{"S-1-1-0"}},
	} {
		o.Transport, o.Logger = proxytest.NewPipes().As(ours()), (&record{}).logger()
		if _, err := server.New(o); err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
}

// Two processes start, end, crash and lose pipes in any order. At all times
// at most one process owns a pipe, and in the end each pipe is served by one of
// the processes that are configured to.
func TestRun_convergesWhateverHappens(t *testing.T) {
	names := []string{`\\.\pipe\csi-proxy-v1`, `\\.\pipe\csi-proxy-v1beta1`}
	rapid.Check(t, func(rt *rapid.T) {
		pipes := proxytest.NewPipes()
		running := map[uint32]func(){}
		defer func() {
			for _, end := range running {
				end()
			}
		}()
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			id := rapid.SampledFrom([]uint32{100, 200}).Draw(rt, "process")
			name := rapid.SampledFrom(names).Draw(rt, "pipe")
			switch rapid.SampledFrom([]string{"start", "end", "break", "fail", "mend", "race"}).Draw(rt, "step") {
			case "start":
				if running[id] == nil {
					running[id] = runs(rt, pipes, id)
				}
			case "end":
				if running[id] != nil {
					running[id]()
					delete(running, id)
				}
			case "break":
				pipes.Break(name)
			case "fail":
				pipes.Fail(name, errBroken)
			case "mend":
				pipes.Fail(name, nil)
			}
		}
		for _, name := range names {
			pipes.Fail(name, nil)
		}
		if len(running) > 0 {
			untilServed(rt, pipes, names, running)
		}
		for id, end := range running {
			end()
			delete(running, id)
		}
		if left := pipes.Owners(); len(left) > 0 {
			rt.Fatalf("after the end of all there are pipes: %v", left)
		}
	})
}

func runs(t *rapid.T, pipes *proxytest.Pipes, id uint32) func() {
	made, err := server.New(server.Options{
		Versions: twoVersions(), Transport: pipes.As(server.Process{ID: id}), Limits: quick(), Logger: (&record{}).logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- made.Run(ctx) }()
	return func() {
		cancel()
		<-done
	}
}

func untilServed(t *rapid.T, pipes *proxytest.Pipes, names []string, running map[uint32]func()) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		owners, served := pipes.Owners(), 0
		for _, name := range names {
			if running[owners[name].ID] != nil {
				served++
			}
		}
		if served == len(names) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the pipes are owned by %v while %d processes run", owners, len(running))
		}
	}
}

// A stop waits for calls in flight, answers no call afterwards, and removes all
// pipes.
func TestRun_stopDrains(t *testing.T) {
	pipes, begun, release := proxytest.NewPipes(), make(chan struct{}), make(chan struct{})
	slow := func(_ context.Context, text string) (string, error) {
		close(begun)
		<-release
		return text, nil
	}
	r := start(t, server.Options{Versions: []api.Definition{echo("", "v1", slow)}, Transport: pipes.As(ours())})
	connection := dialer(pipes.Dial).connect(t, `\\.\pipe\csi-proxy-v1`)
	answered := make(chan error, 1)
	go func() {
		_, err := call(t.Context(), connection, "v1", "text")
		answered <- err
	}()
	<-begun
	ended := make(chan error, 1)
	go func() { ended <- r.end() }()
	until(t, "that the pipe is gone", func() bool { return len(pipes.Owners()) == 0 })
	select {
	case err := <-ended:
		t.Fatalf("the server has ended with a call in flight (%v)", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	if err := <-answered; err != nil {
		t.Errorf("the call in flight ends with %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := call(t.Context(), connection, "v1", "late"); status.Code(err) != codes.Unavailable {
		t.Errorf("after the end a call is answered with %v", err)
	}
}

// A call that does not end is cancelled after the drain timeout.
func TestRun_stopCancelsWhatHangs(t *testing.T) {
	pipes, begun, release := proxytest.NewPipes(), make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(release) })
	hang := func(context.Context, string) (string, error) {
		close(begun)
		<-release
		return "", nil
	}
	limits := quick()
	limits.Drain = 30 * time.Millisecond
	r := start(t, server.Options{Versions: []api.Definition{echo("", "v1", hang)}, Transport: pipes.As(ours()), Limits: limits})
	connection := dialer(pipes.Dial).connect(t, `\\.\pipe\csi-proxy-v1`)
	answered := make(chan error, 1)
	go func() {
		_, err := call(t.Context(), connection, "v1", "text")
		answered <- err
	}()
	<-begun
	if err := r.end(); err != nil { // a wait for the call would not end
		t.Error(err)
	}
	if err := <-answered; status.Code(err) != codes.Unavailable {
		t.Errorf("the cancelled call ends with %v", err)
	}
}

// Clients check whether a pipe exists with a connection on which they never send a
// byte, and which upstream's client never closes. It delays neither other clients nor
// a stop.
func TestRun_silentConnectionsBlockNoOther(t *testing.T) {
	pipes := proxytest.NewPipes()
	limits := quick()
	limits.Connections, limits.Preface, limits.Drain = 4, 100*time.Millisecond, time.Hour
	r := start(t, server.Options{Versions: twoVersions(), Transport: pipes.As(ours()), Limits: limits})
	for range 20 { // many times the limit of connections
		silent, err := pipes.Dial(t.Context(), `\\.\pipe\csi-proxy-v1`)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = silent.Close() }()
	}
	connection := dialer(pipes.Dial).connect(t, `\\.\pipe\csi-proxy-v1`)
	if _, err := call(t.Context(), connection, "v1", ""); err != nil {
		t.Errorf("next to silent connections a call ends with %v", err)
	}
	silent, err := pipes.Dial(t.Context(), `\\.\pipe\csi-proxy-v1`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	if err := r.end(); err != nil { // which must not wait an hour for a silent connection
		t.Error(err)
	}
}

// A proxy that waits for others' pipes is alive, and so must not be restarted, but
// it is not ready.
func TestHandlers_reportThePipes(t *testing.T) {
	for _, c := range []struct {
		taken []string
		ready int
	}{
		{nil, http.StatusOK},
		{[]string{`\\.\pipe\csi-proxy-v1`}, http.StatusOK},
		{[]string{`\\.\pipe\csi-proxy-v1`, `\\.\pipe\csi-proxy-v1beta1`}, http.StatusServiceUnavailable},
	} {
		pipes := proxytest.NewPipes()
		for _, name := range c.taken {
			pipes.Take(name, theirs())
		}
		r := start(t, server.Options{Versions: twoVersions(), Transport: pipes.As(ours())})
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": c.ready} {
			answer := httptest.NewRecorder()
			r.Handlers()[path].ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			if answer.Code != want || strings.Count(answer.Body.String(), "taken by process 200") != len(c.taken) {
				t.Errorf("with %d taken %s answers %d: %s", len(c.taken), path, answer.Code, answer.Body)
			}
		}
	}
}

func connections(t *testing.T, pipes *proxytest.Pipes, n int) []*grpc.ClientConn {
	t.Helper()
	all := make([]*grpc.ClientConn, n)
	for i := range all {
		all[i] = dialer(pipes.Dial).connect(t, `\\.\pipe\csi-proxy-v1`)
	}
	return all
}
