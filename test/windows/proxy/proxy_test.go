//go:build wine && windows

package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Microsoft/go-winio"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
	"github.com/holdfast-csi/holdfast/proto/csiproxy"
)

// readyTime is how long a proxy may take to serve; it takes a fraction of a
// second when the machine has nothing else to do.
const readyTime = 60 * time.Second

// executable is the program under test.
func executable(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("%s does not name an executable; use make test-windows", variable)
	}
	return path
}

// The variables that name the executables.
const (
	native        = "HOLDFAST_CSI_PROXY"
	simulatedHost = "HOLDFAST_CSI_PROXY_SIMULATED"
)

func versions() []api.Definition { return slices.Concat(csiproxy.Versions(), groups.Versions()) }

// process is a proxy in the foreground.
type process struct {
	command *exec.Cmd
	page    string // address of /readyz
	control string // address of the simulated machine's control
	output  *record
	ended   chan struct{}
	err     error // after ended
}

type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// freeAddress is one that is free now.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// launch starts a proxy, which is killed at the test's end.
func launch(t *testing.T, flags ...string) *process {
	t.Helper()
	return start(t, executable(t, native), flags)
}

func start(t *testing.T, program string, flags []string) *process {
	t.Helper()
	p := &process{page: freeAddress(t), output: &record{}, ended: make(chan struct{})}
	arguments := append([]string{"run", "--log-level=debug", "--metrics-bind-address=" + p.page}, flags...)
	p.command = exec.Command(program, arguments...)
	p.command.Stdout, p.command.Stderr = p.output, p.output
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the proxy's log:\n%s", p.output)
		}
	})
	return p
}

// simulated starts a proxy on a simulated machine.
func simulated(t *testing.T, flags ...string) *process {
	t.Helper()
	control := freeAddress(t)
	p := start(t, executable(t, simulatedHost), append([]string{"--simulated-control=" + control}, flags...))
	p.control = control
	return p
}

// kill ends the process as a crash would.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	<-p.ended
}

// pipes are the states of the proxy's pipes, by name.
func (p *process) pipes(t *testing.T) (states map[string]string, ready bool) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + p.page + "/readyz")
	if err != nil {
		return nil, false
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, false
	}
	states = map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, state, _ := strings.Cut(strings.TrimSpace(line), ": ")
		states[name] = state
	}
	return states, answer.StatusCode == http.StatusOK
}

// waitFor waits until the pipes are as they should be.
func (p *process) waitFor(t *testing.T, what string, is func(states map[string]string, ready bool) bool) {
	t.Helper()
	for deadline := time.Now().Add(readyTime); ; time.Sleep(20 * time.Millisecond) {
		states, ready := p.pipes(t)
		if is(states, ready) {
			return
		}
		select {
		case <-p.ended:
			t.Fatalf("the proxy ended: %v", p.err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come true: %v", what, states)
		}
	}
}

// ready waits until every pipe is served.
func (p *process) ready(t *testing.T) *process {
	t.Helper()
	p.waitFor(t, "that all pipes are served", func(states map[string]string, _ bool) bool {
		return count(states, "served") == len(versions())
	})
	return p
}

func count(states map[string]string, beginning string) (n int) {
	for _, state := range states {
		if strings.HasPrefix(state, beginning) {
			n++
		}
	}
	return n
}

// connect is a gRPC client of a pipe.
func connect(t *testing.T, pipe string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient("passthrough:///"+pipe, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(winio.DialPipeContext))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// invoke makes one call, which has its time.
func invoke(t *testing.T, connection *grpc.ClientConn, method string, request, response proto.Message) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyTime)
	defer cancel()
	return connection.Invoke(ctx, method, request, response)
}

// gone reports whether no process serves a pipe.
func gone(pipe string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	connection, err := winio.DialPipeContext(ctx, pipe)
	if err == nil {
		_ = connection.Close()
	}
	return errors.Is(err, fs.ErrNotExist)
}

// steer sends a request to the control of the simulated machine and decodes the answer.
func (p *process) steer(t *testing.T, method, path string, body, answer any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.control+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s answers %s: %s", method, path, response.Status, content)
	}
	if answer == nil {
		return
	}
	if err := json.Unmarshal(content, answer); err != nil {
		t.Fatalf("%s %s answers %s: %v", method, path, content, err)
	}
}

// kubelet is a directory to be the kubelet's, and the flag that says so.
func kubelet(t *testing.T) (dir, flag string) {
	t.Helper()
	dir = winetest.Dir(t)
	return dir, fmt.Sprintf("--kubelet-path=%s", dir)
}
