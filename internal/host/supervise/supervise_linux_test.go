package supervise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/pluginwatch"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/linux/pidfd"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// roleVariable makes this test's binary a driver.
const roleVariable = "SUPERVISE_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		act(role)
		return
	}
	goleak.VerifyTestMain(m)
}

// act is the program of the tests' processes.
func act(role string) {
	fmt.Println("started as", role)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	switch role {
	case "crash":
		os.Exit(3)
	case "stubborn":
		select {}
	case "chatty":
		for range 30000 {
			fmt.Println(strings.Repeat("x", 99))
		}
	case "mute": // it never listens
	default:
		listener, err := net.Listen("unix", strings.TrimPrefix(os.Getenv("CSI_ENDPOINT"), "unix://"))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		defer csidriver.New(role).Serve(listener)()
	}
	<-signals
}

// host is a root directory with a manager of plugins and a supervisor.
type host struct {
	t       *testing.T
	root    string
	manager *plugins.Manager
	bootID  string
	log     bytes.Buffer
	deaf    bool // the kernel reports no changes
	*Supervisor
	stop func()
}

func newHost(t *testing.T) *host {
	t.Helper()
	root, err := os.MkdirTemp("", "sv") //nolint:usetesting // a socket has no room in the path of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, root: root}
	if h.bootID, err = store.BootID(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "drivers.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.start(false)
	t.Cleanup(func() {
		if err := os.RemoveAll(filepath.Join(root, "drivers.d")); err != nil {
			t.Error(err)
		}
		if err := os.MkdirAll(filepath.Join(root, "drivers.d"), 0o700); err != nil {
			t.Error(err)
		}
		h.stop()
		h.start(true)
		h.until(func() bool { return len(h.List()) == 0 })
		h.stop()
		_ = os.RemoveAll(root)
	})
	return h
}

// start is a new host on the same root.
func (h *host) start(stopAtEnd bool) {
	h.t.Helper()
	h.manager = plugins.New(slog.New(slog.DiscardHandler))
	h.Supervisor = New(Options{
		Root: h.root, NodeName: "node-1", BootID: h.bootID, Registry: h.manager, StopAtEnd: stopAtEnd,
		Logger: slog.New(slog.NewTextHandler(&h.log, nil)),
	})
	if h.deaf {
		h.open = func() (*fsnotify.Watcher, error) { return nil, os.NewSyscallError("inotify_init1", syscall.EMFILE) }
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	if h.t.Context().Err() != nil {
		ctx, cancel = context.WithCancel(context.Background())
	}
	var running sync.WaitGroup
	running.Go(func() { h.manager.Run(ctx, make(chan pluginwatch.Change)) })
	running.Go(func() {
		if err := h.Run(ctx); err != nil {
			h.t.Error(err)
		}
	})
	h.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
}

// put writes a unit's file as an editor does.
func (h *host) put(file, format string, arguments ...any) {
	h.t.Helper()
	path := filepath.Join(h.root, "drivers.d", file)
	if err := os.WriteFile(path+".new", fmt.Appendf(nil, format, arguments...), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		h.t.Fatal(err)
	}
}

// unit writes the file of a driver that is this test's binary.
func (h *host) unit(name, role, more string) {
	h.t.Helper()
	h.put(name+".yaml", "name: %s\ncommand: [%s]\nenvironment: {%s: %s}\n%s", name, os.Args[0], roleVariable, role, more)
}

func (h *host) remove(name string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.root, "drivers.d", name+".yaml")); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) until(condition func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			list, _ := json.MarshalIndent(h.List(), "", " ")
			h.stop()
			h.t.Fatalf("it did not happen; %s\n%s", list, &h.log)
		}
	}
}

func (h *host) status(name string) Status {
	for _, status := range h.List() {
		if status.Name == name {
			return status
		}
	}
	return Status{}
}

func (h *host) pid(name string) int { return h.status(name).PID }

func (h *host) registered(name string) bool {
	_, err := h.manager.Driver(name)
	return err == nil
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestRun_startsRegistersAndStops(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "d.example", "register: true\n")
	h.until(func() bool { return h.registered("d.example") })
	pid := h.pid("d.example")
	if log := h.status("d.example").Log; len(log) != 1 || log[0] != "started as d.example" {
		t.Errorf("its log is %q", log)
	}
	h.remove("d.example")
	h.until(func() bool { return len(h.List()) == 0 })
	if alive(pid) || h.registered("d.example") {
		t.Error("it continues")
	}
}

func TestRun_startsADriverAgainThatEndedAndRegistersItAgain(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "d.example", "register: true\nrestart: {first: 10ms}\n")
	h.until(func() bool { return h.registered("d.example") })
	pid := h.pid("d.example")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.until(func() bool { now := h.pid("d.example"); return now != 0 && now != pid && h.registered("d.example") })
	if got := h.status("d.example"); got.Restarts != 1 || !strings.Contains(got.LastError, "signal: killed") {
		t.Errorf("%+v", got)
	}
}

func TestRun_backsOffFromADriverThatCrashes(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "crash", "restart: {first: 20ms, longest: 80ms}\n")
	h.until(func() bool { return h.status("d.example").Restarts >= 5 })
	if got := h.status("d.example").LastError; got != "it ended by itself: exit status 3" {
		t.Error(got)
	}
}

func TestRun_aFileThatIsRefusedLeavesTheDriverAlone(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "d.example", "register: true\n")
	h.until(func() bool { return h.registered("d.example") })
	pid := h.pid("d.example")
	h.unit("d.example", "d.example", "colour: red\n")
	h.put("other.yaml", "name: other\n")
	h.until(func() bool { return strings.Contains(h.status("d.example").LastError, `unknown field "colour"`) })
	if !alive(pid) || h.pid("d.example") != pid {
		t.Error("it was stopped")
	}
	refused := h.List()[1]
	if refused.State != StateRefused || refused.LastError != "command: it is missing" {
		t.Errorf("%+v", refused)
	}
	h.stop() // also a host that finds the file so at its start
	h.start(false)
	h.until(func() bool { return h.registered("d.example") })
	if h.pid("d.example") != pid {
		t.Error("it was started again")
	}
}

func TestRun_restartsAChangedUnit(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "d.example", "register: true\n")
	h.until(func() bool { return h.registered("d.example") })
	pid := h.pid("d.example")
	h.unit("d.example", "d.example", "register: true\nstopGrace: 5s\n")
	h.until(func() bool { now := h.pid("d.example"); return now != 0 && now != pid && h.registered("d.example") })
	if alive(pid) {
		t.Error("the old one continues")
	}
}

func TestRun_killsADriverThatDoesNotEnd(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "stubborn", "stopGrace: 50ms\n")
	h.until(func() bool { return h.pid("d.example") != 0 && len(h.status("d.example").Log) > 0 })
	pid := h.pid("d.example")
	h.remove("d.example")
	h.until(func() bool { return len(h.List()) == 0 })
	if alive(pid) {
		t.Error("it continues")
	}
}

func TestRun_takesOverTheDriversOfAnEarlierHost(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "d.example", "register: true\n")
	h.unit("e.example", "e.example", "register: true\n")
	h.until(func() bool { return h.registered("d.example") && h.registered("e.example") })
	d, e := h.pid("d.example"), h.pid("e.example")
	h.stop()
	if !alive(d) || !alive(e) {
		t.Fatal("the drivers ended with the host")
	}
	h.remove("e.example")
	h.start(false)
	h.until(func() bool { return h.registered("d.example") && h.status("e.example").Name == "" })
	if h.pid("d.example") != d || !alive(d) {
		t.Error("the driver was started again")
	}
	// It is not this process's child any more in a real host; here it is, and
	// no other process reaps it.
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(e, &status, 0, nil); err != nil || !status.Signaled() && !status.Exited() {
		t.Errorf("the driver without a unit continues: %v", err)
	}
}

func TestRun_findsAProcessWhoseNumberWasNotWrittenDown(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "d.example", "register: true\n")
	h.until(func() bool { return h.registered("d.example") })
	pid := h.pid("d.example")
	h.stop()
	records, err := openRecords(filepath.Join(h.root, "supervise"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = records.root.Close() }()
	all, _, err := records.all()
	if err != nil {
		t.Fatal(err)
	}
	one := all["d.example"]
	one.Processes[0].PID, one.Processes[0].Start = 0, 0
	if err := records.write("d.example", one); err != nil {
		t.Fatal(err)
	}
	h.start(false)
	h.until(func() bool { return h.registered("d.example") })
	if h.pid("d.example") != pid {
		t.Errorf("another process serves: %d, not %d", h.pid("d.example"), pid)
	}
}

func TestAdopt_leavesAProcessAloneThatHasTheNumberByNow(t *testing.T) {
	self, err := pidfd.StatOf("self")
	if err != nil {
		t.Fatal(err)
	}
	found, err := adopt(processRecord{PID: os.Getpid(), Start: self.Start - 1})
	if found != nil || err != nil {
		t.Errorf("%v, %v", found, err)
	}
}

func TestRun_rollsAChangedUnitWithoutAGap(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "d.example", "register: true\nrolling: true\n")
	h.until(func() bool { return h.registered("d.example") })
	pid := h.pid("d.example")
	gone := make(chan bool, 1)
	done := make(chan struct{})
	go func() {
		missing := false
		for {
			select {
			case <-done:
				gone <- missing
				return
			default:
				missing = missing || !h.registered("d.example")
				time.Sleep(time.Millisecond)
			}
		}
	}()
	h.unit("d.example", "d.example", "register: true\nrolling: true\nstopGrace: 1s\n")
	h.until(func() bool { now := h.pid("d.example"); return now != 0 && now != pid && !alive(pid) })
	close(done)
	if <-gone {
		t.Error("for a moment no instance served")
	}
}

func TestRun_aRollingUnitThatDoesNotWorkLeavesTheOldOneServing(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "d.example", "register: true\nrolling: true\n")
	h.until(func() bool { return h.registered("d.example") })
	pid := h.pid("d.example")
	h.unit("d.example", "crash", "register: true\nrolling: true\n")
	h.until(func() bool {
		return strings.Contains(h.status("d.example").LastError, "ended before it was registered")
	})
	if !alive(pid) || !h.registered("d.example") {
		t.Error("the old one is gone")
	}
	h.unit("d.example", "mute", "register: true\nrolling: true\n")
	h.until(func() bool { now := h.pid("d.example"); return now != pid && now != 0 })
	h.unit("d.example", "d.example", "register: true\nrolling: true\nstopGrace: 1s\n") // not to be waited for
	h.until(func() bool { return !alive(pid) && h.registered("d.example") })
}

// The machine's limits of inotify may be reached by any user.
func TestRun_followsUnitsWithoutInotify(t *testing.T) {
	h := newHost(t)
	h.stop()
	h.deaf = true
	h.start(false)
	h.unit("d.example", "d.example", "register: true\n")
	h.until(func() bool { return h.registered("d.example") })
	h.remove("d.example")
	h.unit("e.example", "chatty", "")
	h.until(func() bool { return h.status("d.example").Name == "" })
	h.until(func() bool {
		older, err := os.Stat(filepath.Join(h.root, "logs", "e.example.log.1"))
		return err == nil && older.Size() == maximumLog
	})
}

func TestRun_cutsALogThatGrows(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "chatty", "")
	path := filepath.Join(h.root, "logs", "d.example.log")
	h.until(func() bool {
		older, err := os.Stat(path + ".1")
		now, err2 := os.Stat(path)
		return err == nil && err2 == nil && older.Size() == maximumLog && now.Size() <= maximumLog
	})
}

func TestRun_runsNoFileThatOthersMayWrite(t *testing.T) {
	h := newHost(t)
	path := filepath.Join(h.root, "drivers.d", "d.yaml")
	if err := os.WriteFile(path, []byte("name: d\ncommand: [/bin/true]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	h.until(func() bool {
		list := h.List()
		return len(list) == 1 && strings.Contains(list[0].LastError, "lets others write it")
	})
}

// A user who may write to the directory, or replace it, may have anything
// run.
func TestRun_runsNothingFromADirectoryThatOthersMayWrite(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "d.example", "register: true\nrestart: {first: 10ms}\n")
	h.until(func() bool { return h.registered("d.example") })
	directory := filepath.Join(h.root, "drivers.d")
	for _, c := range []struct {
		name, path    string
		corrupt, mend func(string) error
		want          string
	}{
		{"all may write it", directory, chmod(0o777), chmod(0o700), directory + ": its mode drwxrwxrwx lets others write it: chmod go-w " + directory},
		{"a group may write it", directory, chmod(0o770), chmod(0o750), directory + ": its mode drwxrwx--- lets others write it: chmod go-w " + directory},
		{"another user owns it", directory, chown(12345), chown(0), directory + ": it belongs to user 12345, who could have anything run: chown root " + directory},
		{"all users may replace it", h.root, chmod(0o777), chmod(0o700), h.root + ": its mode drwxrwxrwx lets others write it: chmod go-w " + h.root},
	} {
		pid := h.pid("d.example")
		if err := c.corrupt(c.path); err != nil {
			t.Fatal(err)
		}
		h.unit("e.example", "e.example", "register: true\n")
		h.until(func() bool {
			list := h.List()
			last := list[len(list)-1]
			return last.File == "drivers.d" && last.State == StateRefused && last.LastError == c.want
		})
		if h.status("e.example").Name != "" || h.pid("d.example") != pid || !strings.Contains(h.status("d.example").LastError, c.want) {
			t.Errorf("%s: %+v", c.name, h.List())
		}
		h.stop() // also a host that finds it so at its start
		h.start(false)
		// The file is refused a moment before the process that runs is taken over.
		h.until(func() bool {
			return strings.Contains(h.status("d.example").LastError, c.want) && h.pid("d.example") != 0
		})
		if h.status("e.example").Name != "" || h.pid("d.example") != pid {
			t.Errorf("%s, after a start of the host: %+v", c.name, h.List())
		}
		if err := c.mend(c.path); err != nil {
			t.Fatal(err)
		}
		h.until(func() bool {
			return h.registered("e.example") && !strings.Contains(h.status("d.example").LastError, c.want)
		})
		h.remove("e.example")
		h.until(func() bool { return len(h.List()) == 1 })
	}
}

func chmod(mode os.FileMode) func(string) error {
	return func(path string) error { return os.Chmod(path, mode) }
}

func chown(uid int) func(string) error {
	return func(path string) error { return os.Lchown(path, uid, -1) }
}

func TestRun_startsNoDriverWhoseRecordIsDamaged(t *testing.T) {
	h := newHost(t)
	h.unit("d.example", "d.example", "register: true\n")
	h.unit("e.example", "e.example", "register: true\n")
	h.until(func() bool { return h.registered("d.example") && h.registered("e.example") })
	d, e := h.pid("d.example"), h.pid("e.example")
	h.stop()
	record := filepath.Join(h.root, "supervise", "d.example.json")
	if err := os.Truncate(record, 20); err != nil {
		t.Fatal(err)
	}
	h.start(false)
	h.until(func() bool { return h.registered("e.example") && len(h.List()) == 2 })
	refused := h.List()[1]
	if h.pid("e.example") != e || refused.State != StateRefused || !strings.Contains(refused.LastError, record+", is damaged") {
		t.Errorf("%+v", h.List())
	}
	if err := syscall.Kill(d, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	h.unit("d.example", "d.example", "register: true\n") // touched
	h.until(func() bool { return h.registered("d.example") })
}

func TestRun_aDriverInheritsNothingButItsStreams(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(secret, unix.O_RDONLY, 0) // without O_CLOEXEC, as inherited from a shell
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	h := newHost(t)
	h.put("d.example.yaml", "name: d.example\ncommand: [/bin/sleep, infinity]\n") // it opens nothing itself
	h.until(func() bool { return h.pid("d.example") != 0 })
	log := filepath.Join(h.root, "logs", "d.example.log")
	desired := map[string]string{"0": os.DevNull, "1": log, "2": log}
	// While the process starts, its dynamic loader opens libraries and closes them; what it inherited stays.
	h.until(func() bool { return maps.Equal(descriptors(t, h.pid("d.example")), desired) })
}

// descriptors reads what the file descriptors of a process refer to; those closed meanwhile are left out.
func descriptors(t *testing.T, pid int) map[string]string {
	t.Helper()
	directory := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, entry := range entries {
		to, err := os.Readlink(filepath.Join(directory, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		found[entry.Name()] = to
	}
	return found
}
