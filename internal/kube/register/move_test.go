package register

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/internal/unixsocket"
)

// instance is a running registration.
type instance struct {
	*Server
	t   *testing.T
	log *lines
	end func()
}

// run runs a registration with short times.
func run(t *testing.T, directory string, silence, moveDelay time.Duration) *instance {
	t.Helper()
	log := &lines{}
	server, err := New(Options{
		Directory: directory, Driver: driver, Endpoint: "/csi/csi.sock", Logger: slog.New(slog.NewTextHandler(log, nil)),
		Check: 5 * time.Millisecond, Silence: silence, MoveDelay: moveDelay,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Run(ctx); err != nil {
			t.Errorf("the registration ended with %v", err)
		}
	}()
	end := sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(end)
	return &instance{server, t, log, end}
}

// offered waits until a socket other than the given one is offered.
func (i *instance) offered(before string) string {
	i.t.Helper()
	var socket string
	eventually(i.t, "a socket is offered", func() bool {
		socket = i.Status().Socket
		return socket != "" && socket != before
	})
	return socket
}

// names returns all sockets that were offered, in order. It reads the log, because a
// short-lived socket may never show in a listing of the directory.
func (i *instance) names() []string {
	var names []string
	for _, found := range regexp.MustCompile(`msg="offering the driver for registration".* socket=(\S+)`).FindAllStringSubmatch(i.log.String(), -1) {
		names = append(names, found[1])
	}
	return names
}

// register plays the kubelet until it has registered the driver.
func (i *instance) register() (socket string) {
	i.t.Helper()
	eventually(i.t, "the kubelet registers the driver", func() bool {
		socket = i.Status().Socket
		return socket != "" && notify(i.t, socket, "") == nil && i.Status().Socket == socket
	})
	return socket
}

// notify reports a result to a socket: "" is success.
func notify(t *testing.T, socket, refusal string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := kubelet(t, socket).NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: refusal == "", Error: refusal})
	return err
}

func ask(t *testing.T, socket string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := kubelet(t, socket).GetInfo(ctx, &registration.InfoRequest{})
	return err
}

// keeps fails the test if the socket moves within d.
func (i *instance) keeps(socket string, d time.Duration) {
	i.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if now := i.Status().Socket; now != socket || !present(socket) {
			i.t.Fatalf("the socket moved from %s to %s", socket, now)
		}
	}
}

func (i *instance) reports(words string) {
	i.t.Helper()
	eventually(i.t, "it reports "+words, func() bool {
		text, err := i.Describe()
		return strings.Contains(text+fmt.Sprint(err), words)
	})
}

// registry makes a directory whose path is short enough for sockets with long names.
func registry(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "reg") //nolint:usetesting // that one's path has the test's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	return directory
}

func usual(directory string) string { return filepath.Join(directory, driver+"-reg.sock") }

// stale leaves a socket file as a process that was killed does.
func stale(t *testing.T, path string) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSilence_movesTheSocketToANewName(t *testing.T) {
	directory := registry(t)
	i := run(t, directory, 50*time.Millisecond, 20*time.Millisecond)
	eventually(t, "it has moved twice", func() bool { return len(i.names()) >= 3 })
	names := i.names()
	if names[0] != usual(directory) || names[1] == names[2] {
		t.Errorf("it is offered at %q", names)
	}
	for _, moved := range names[1:3] {
		if name := filepath.Base(moved); !strings.HasPrefix(name, driver+"-reg_") || !strings.HasSuffix(name, ".sock") || filepath.Dir(moved) != directory {
			t.Errorf("it moved to %s", moved)
		}
	}
	i.register()
	if entries, _ := os.ReadDir(directory); len(entries) != 1 {
		t.Errorf("the registry has %v", entries)
	}
	i.end()
	if entries, _ := os.ReadDir(directory); len(entries) != 0 {
		t.Errorf("at the end the registry has %v", entries)
	}
}

func TestSilence_waitsBetweenTwoNames(t *testing.T) {
	directory := registry(t)
	const moveDelay = 200 * time.Millisecond
	i := run(t, directory, 50*time.Millisecond, moveDelay)
	i.offered("")
	var there time.Time // when the first socket was last seen
	eventually(t, "the usual socket goes", func() bool {
		before := time.Now()
		if !present(usual(directory)) {
			return true
		}
		there = before
		return false
	})
	eventually(t, "another comes", func() bool {
		entries, _ := os.ReadDir(directory)
		return len(entries) > 0
	})
	if took := time.Since(there); took < moveDelay {
		t.Errorf("another name was offered after %v", took)
	}
}

func TestSilence_doesNotMoveARegisteredSocket(t *testing.T) {
	i := run(t, registry(t), 300*time.Millisecond, time.Millisecond)
	socket := i.register()
	i.keeps(socket, 800*time.Millisecond)
	i.reports("registered for")
}

func TestSilence_doesNotMoveWhileTheKubeletProcessesTheSocket(t *testing.T) {
	i := run(t, registry(t), 300*time.Millisecond, time.Millisecond)
	var socket string
	eventually(t, "the kubelet asks", func() bool {
		socket = i.Status().Socket
		return socket != "" && ask(t, socket) == nil && i.Status().Socket == socket
	})
	i.keeps(socket, 800*time.Millisecond)
	i.reports("has not registered it yet")
}

func TestRefusal_staysVisibleUntilTheNextResult(t *testing.T) {
	i := run(t, registry(t), 200*time.Millisecond, time.Millisecond)
	var socket string
	eventually(t, "the kubelet refuses", func() bool {
		socket = i.Status().Socket
		return socket != "" && notify(t, socket, "the name is taken") == nil
	})
	i.reports("the name is taken")
	i.offered(socket) // the kubelet's backoff is longer than the silence
	if status := i.Status(); status.Registered || status.Refusal != "the name is taken" {
		t.Errorf("after the move: %+v", status)
	}
	i.register()
	if status := i.Status(); !status.Registered || status.Refusal != "" {
		t.Errorf("after the registration: %+v", status)
	}
}

func TestResult_onAReplacedSocketIsIgnored(t *testing.T) {
	i := run(t, registry(t), 300*time.Millisecond, time.Millisecond)
	var first string
	var old registration.RegistrationClient
	eventually(t, "the kubelet refuses", func() bool {
		if first = i.Status().Socket; first == "" {
			return false
		}
		old = kubelet(t, first)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // it may have moved meanwhile
		defer cancel()
		_, err := old.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{Error: "not yet"})
		return err == nil
	})
	i.offered(first)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := old.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true}); err == nil || i.Status().Registered {
		t.Errorf("over the old connection (%v) the new socket became %+v", err, i.Status())
	}
}

func TestStart_removesSocketsOfDeadProcessesAndWaits(t *testing.T) {
	directory := registry(t)
	const moveDelay = 200 * time.Millisecond
	dead := filepath.Join(directory, driver+"-reg_0000dead.sock")
	other := filepath.Join(directory, driver+"2-reg_0000dead.sock")
	stale(t, dead)
	stale(t, other)
	began := time.Now()
	i := run(t, directory, time.Minute, moveDelay)
	i.offered("")
	if present(dead) || !present(other) {
		t.Errorf("the dead process's socket is present: %v, the other driver's: %v", present(dead), present(other))
	}
	// The kubelet may have the driver registered under the dead socket's name. The
	// removal of that socket would then undo the registration of a new one.
	if took := time.Since(began); took < moveDelay {
		t.Errorf("offered %v after the removal", took)
	}
}

func TestStart_waitsWhileAnotherProcessServesTheDriver(t *testing.T) {
	for name, path := range map[string]string{"under the usual name": driver + "-reg.sock", "moved": driver + "-reg_00alive0.sock"} {
		t.Run(name, func(t *testing.T) {
			directory := registry(t)
			living, err := unixsocket.Listen(context.Background(), filepath.Join(directory, path))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = living.Close() })
			i := run(t, directory, time.Minute, time.Millisecond)
			i.reports("another process serves")
			if status := i.Status(); !errors.Is(status.Err, unixsocket.ErrServed) || status.Socket != "" || !living.Owns() {
				t.Errorf("%+v; the other process still has its socket: %v", status, living.Owns())
			}
			if err := living.Close(); err != nil {
				t.Fatal(err)
			}
			if socket := i.offered(""); socket != usual(directory) {
				t.Errorf("offered at %s", socket)
			}
			if err := i.Status().Err; err != nil {
				t.Errorf("the error stays: %v", err)
			}
		})
	}
}

func TestStart_ignoresFilesThatAreNotSockets(t *testing.T) {
	directory := registry(t)
	if err := os.Mkdir(filepath.Join(directory, driver+"-reg_dir.sock"), 0o700); err != nil {
		t.Fatal(err)
	}
	run(t, directory, time.Minute, time.Millisecond).register()
}

func TestDescribe_beforeAnythingWasOffered(t *testing.T) {
	server, err := New(Options{Directory: registry(t), Driver: driver, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if words, err := server.Describe(); err == nil || words != "" || !strings.Contains(err.Error(), "not offered") {
		t.Errorf("it reports %q, %v", words, err)
	}
}
