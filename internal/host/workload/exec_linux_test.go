package workload

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inContainer runs a script in a running container and returns what it said.
func inContainer(t *testing.T, shim Shim, container Container, stdin string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code, err := shim.Exec(t.Context(), container, Session{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	return code, out.String(), errs.String()
}

// command is a script with what the container has.
func command(of Container, script string) Container {
	return Container{Name: of.Name, Command: []string{"sh", "-c", script}, Env: of.Env, Directory: "/", UID: of.UID, GID: of.GID, Groups: of.Groups, DropAll: of.DropAll}
}

func TestExec_runsInTheContainer(t *testing.T) {
	shim := testShim(t)
	container := shell(t, "sleep 300", Mount{Target: "/holdfast-exec", Memory: true, ReadOnly: true, Files: []File{{Path: "file", Data: []byte("in memory"), Mode: 0o444}}})
	container.UID, container.GID, container.Groups = 1234, 4321, []uint32{77}
	container.Env = append(container.Env, "GIVEN=yes")
	_, process := start(t, shim, container)
	code, stdout, stderr := inContainer(t, shim, command(container,
		`cat /holdfast-exec/file; echo " $GIVEN $(id -u) $(id -g) $(id -G)"; cat; echo err >&2; cat /proc/1/comm; [ $$ -lt 100 ] && grep CapBnd /proc/self/status; exit 7`), "from here\n")
	want := "in memory yes 1234 4321 4321 77\nfrom here\n"
	if code != 7 || !strings.HasPrefix(stdout, want) || stderr != "err\n" {
		t.Errorf("code %d, %q, %q; want %q", code, stdout, stderr, want)
	}
	if _, bounds, found := strings.Cut(stdout, "CapBnd:\t"); !found || strings.Contains(bounds, "ffffff") {
		t.Errorf("it is not among the container's processes, or has more than its capabilities: %q", stdout)
	}
	if code, _, stderr := inContainer(t, shim, Container{Name: "main", Command: []string{"/does/not/exist"}, Directory: "/"}, ""); code != 127 || !strings.Contains(stderr, "no such file") {
		t.Errorf("a missing command: %d, %s", code, stderr)
	}
	if err := process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(t, shim, process, ReasonError)
	if _, err := shim.Exec(t.Context(), command(container, "true"), Session{Stdout: io.Discard, Stderr: io.Discard}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("in a container that has ended: %v", err)
	}
}

// notices is a writer that reports when a text has come.
type notices struct {
	mu    sync.Mutex
	text  strings.Builder
	await string
	seen  chan struct{}
	once  sync.Once
}

func newNotices(text string) *notices { return &notices{await: text, seen: make(chan struct{})} }

func (n *notices) Write(data []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text.Write(data)
	if strings.Contains(n.text.String(), n.await) {
		n.once.Do(func() { close(n.seen) })
	}
	return len(data), nil
}

func (n *notices) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

func TestExec_passesSignalsToTheCommandAndItsChildren(t *testing.T) {
	shim := testShim(t)
	container := shell(t, "sleep 300")
	start(t, shim, container)
	signals, out := make(chan syscall.Signal, 1), newNotices("ready")
	go func() {
		<-out.seen
		signals <- syscall.SIGINT
	}()
	script := "trap 'echo caught; exit 3' INT; (trap - INT; echo ready; exec sleep 300) & wait"
	code, err := shim.Exec(t.Context(), command(container, script), Session{Stdout: out, Stderr: out, Signals: signals})
	if err != nil || code != 3 || !strings.Contains(out.String(), "caught") {
		t.Errorf("code %d, %v, %q", code, err, out)
	}
}

// A caller that is gone ends its command, and the container goes on.
func TestExec_endsWithItsCaller(t *testing.T) {
	shim := testShim(t)
	container := shell(t, "sleep 300")
	start(t, shim, container)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := newNotices("ready")
	go func() {
		<-out.seen
		cancel()
	}()
	code, err := shim.Exec(ctx, command(container, "echo ready; exec sleep 300"), Session{Stdout: out, Stderr: out})
	if err != nil || code != 128+int(syscall.SIGHUP) {
		t.Errorf("code %d, %v", code, err)
	}
	if code, _, _ := inContainer(t, shim, command(container, "true"), ""); code != 0 {
		t.Errorf("afterwards: %d", code)
	}
}

func TestExec_hasATerminalOfTheContainer(t *testing.T) {
	shim := testShim(t)
	container := shell(t, "sleep 300")
	container.UID, container.GID = 1234, 1234
	start(t, shim, container)
	sizes := make(chan Size, 1)
	sizes <- Size{Columns: 123, Rows: 45}
	input, typed := io.Pipe()
	out := newNotices("45 123")
	go func() {
		<-out.seen
		_, _ = io.WriteString(typed, "\x03") // Ctrl-C, which the terminal turns into a signal
	}()
	script := `trap 'echo interrupted; exit 5' INT; tty; echo $TERM; test -O "$(tty)" && echo own; while [ "$(stty size)" != "45 123" ]; do sleep 0.05; done; stty size; while :; do sleep 0.05; done`
	code, err := shim.Exec(t.Context(), command(container, script), Session{Stdin: input, Stdout: out, Terminal: true, Sizes: sizes})
	if err != nil || code != 5 {
		t.Fatalf("code %d, %v, %q", code, err, out)
	}
	for _, want := range []string{"/dev/pts/", "xterm", "own", "interrupted"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the terminal has no %q: %q", want, out)
		}
	}
}

// What a container puts in the place of its multiplexer is not opened.
func TestExec_refusesATerminalThatIsNone(t *testing.T) {
	shim := testShim(t)
	// Its own /dev/pts is hidden below files in memory.
	container := shell(t, "sleep 300", Mount{Target: "/dev/pts", Memory: true, ReadOnly: true, Files: []File{{Path: "ptmx", Mode: 0o666}}})
	start(t, shim, container)
	_, err := shim.Exec(t.Context(), command(container, "true"), Session{Stdout: io.Discard, Terminal: true})
	if err == nil || !strings.Contains(err.Error(), "is not the multiplexer") {
		t.Errorf("got %v", err)
	}
}
