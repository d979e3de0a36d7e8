// Package host_test tests `holdfast host` with the built command, as a user runs
// it: the daemon, its socket, drivers in separate processes, real loop
// devices and real mounts.
package host_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
	built "github.com/holdfast-csi/holdfast/test/binary"
)

var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	directory, err := os.MkdirTemp("", "holdfast-host")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(directory) }()
	if binary, err = built.Build(context.Background(), directory, "holdfast"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// machine is a root directory with a host that is started, killed and started
// again.
type machine struct {
	t      *testing.T
	root   string
	client *api.Client
	host   *exec.Cmd
	log    *os.File
	// attributes are the host process's SysProcAttr.
	attributes *syscall.SysProcAttr
	// arguments are passed to every host that is started.
	arguments []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run make test")
	}
	// A short path: it holds sockets, and the name of a test can be long.
	directory, err := os.MkdirTemp("", "hh") //nolint:usetesting // a socket has no room in the path of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(directory, "log"))
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, root: filepath.Join(directory, "r"), log: log}
	m.client = api.DialRoot(m.root)
	t.Cleanup(func() {
		m.stop()
		m.client.Close()
		// Containers and drivers outlive the host: a test ends those that it had
		// started through the API, and every process that is left then is a defect.
		left := append(m.processes(), m.shims()...)
		for deadline := time.Now().Add(limitOfTest); len(left) > 0 && !t.Failed(); left = append(m.processes(), m.shims()...) {
			if time.Now().After(deadline) {
				t.Errorf("left running: %v", left)
			}
			time.Sleep(20 * time.Millisecond) // a killed process disappears a moment later
		}
		m.endProcesses()
		nodetest.UnmountBelow(t, m.root)
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the log of the host is %s", log.Name())
			return
		}
		if err := os.RemoveAll(directory); err != nil {
			t.Error(err)
		}
	})
	return m
}

// launch runs the host.
func (m *machine) launch(arguments ...string) error {
	all := slices.Concat([]string{"host", "--root", m.root, "--log-format=json", "--log-level=debug"}, m.arguments, arguments)
	m.host = exec.Command(binary, all...)
	m.host.Stdout, m.host.Stderr = m.log, m.log
	m.host.SysProcAttr = m.attributes
	return m.host.Start()
}

// start runs the host and waits until it answers.
func (m *machine) start(arguments ...string) {
	m.t.Helper()
	if err := m.launch(arguments...); err != nil {
		m.t.Fatal(err)
	}
	for deadline := time.Now().Add(limitOfTest); ; time.Sleep(5 * time.Millisecond) {
		_, err := m.client.Version(m.t.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("the host does not answer: %v\n%s", err, m.tail())
		}
	}
}

// kill ends the host with SIGKILL.
func (m *machine) kill() {
	m.t.Helper()
	if err := m.host.Process.Kill(); err != nil {
		m.t.Fatal(err)
	}
	_ = m.host.Wait() // its error reports the signal
	m.host = nil
}

// stop ends the host as a service manager does.
func (m *machine) stop() {
	m.t.Helper()
	if m.host == nil {
		return
	}
	if err := m.host.Process.Signal(syscall.SIGTERM); err != nil {
		m.t.Error(err)
	}
	if err := m.host.Wait(); err != nil {
		m.t.Errorf("the host ends with %v\n%s", err, m.tail())
	}
	m.host = nil
}

// tail is the end of the host's log.
func (m *machine) tail() string {
	data, _ := os.ReadFile(m.log.Name())
	lines := strings.Split(string(data), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// processes are those that have the root in their command line or environment,
// without the host itself and this test.
func (m *machine) processes() []int {
	entries, _ := os.ReadDir("/proc")
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || m.host != nil && pid == m.host.Process.Pid {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if strings.Contains(string(line), m.root+"/") || strings.HasSuffix(strings.TrimRight(string(line), "\x00"), m.root) {
			found = append(found, pid)
		}
	}
	return found
}

// endProcesses ends the processes that a failed test left running.
func (m *machine) endProcesses() {
	ours := func(pid int) bool { return slices.Contains(append(m.processes(), m.shims()...), pid) }
	for _, pid := range append(m.processes(), m.shims()...) {
		nodetest.Kill(m.t, pid, ours)
	}
}

// mounts are the mount points at and below the root.
func (m *machine) mounts() []string { return nodetest.MountsBelow(m.t, m.root) }

// loops are the loop devices whose files are below the root.
func (m *machine) loops() []string { return nodetest.LoopsBelow(m.t, m.root) }

// apply applies a manifest, again while the host is away.
func (m *machine) apply(text string) api.ApplyResult {
	m.t.Helper()
	result, err := m.client.Apply(m.t.Context(), []manifest.File{{Name: "test", Data: []byte(text)}}, api.ApplyOptions{})
	if err != nil {
		m.t.Fatalf("apply: %v\n%s", err, text)
	}
	return result
}

func (m *machine) kind(resource string) store.Kind {
	m.t.Helper()
	kind, known := store.KindOf(resource)
	if !known {
		m.t.Fatalf("no kind %s", resource)
	}
	return kind
}

// get returns nil if the object does not exist.
func get[T store.Object](m *machine, resource, namespace, name string) (none T) {
	m.t.Helper()
	object, err := m.client.Get(m.t.Context(), m.kind(resource), namespace, name)
	if err != nil {
		if errors.Is(err, api.ErrNotFound) {
			return none
		}
		m.t.Fatalf("get %s %s: %v", resource, name, err)
	}
	return object.(T)
}

// until waits for a condition, for limitOfTest at least: the machine may be slow.
func (m *machine) until(what string, limit time.Duration, done func() bool) {
	m.t.Helper()
	limit = max(limit, limitOfTest)
	for deadline := time.Now().Add(limit); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			text := m.tail()
			m.dump()
			m.t.Fatalf("after %v not: %s\n%s", limit, what, text)
		}
	}
}

// dump makes the host write its goroutines to its log, and exit.
func (m *machine) dump() {
	if m.host == nil {
		return
	}
	_ = m.host.Process.Signal(syscall.SIGQUIT)
	_ = m.host.Wait()
	m.host = nil
}
