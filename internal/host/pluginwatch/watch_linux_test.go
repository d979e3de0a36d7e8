package pluginwatch

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched is a directory with a Watcher on it.
type watched struct {
	t         *testing.T
	directory string
	changes   chan Change
}

// shortDirectory has a path in which sockets have room.
func shortDirectory(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "pw") //nolint:usetesting // a socket has no room in the path of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	return filepath.Join(directory, "r")
}

func watch(t *testing.T, directory string) *watched {
	t.Helper()
	w := &watched{t: t, directory: directory, changes: make(chan Change)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- New(directory, w.changes, slog.New(slog.DiscardHandler)).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

// socket makes a socket that lives as long as the test.
func socket(t *testing.T, path string) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if unix, ok := listener.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false)
	}
	t.Cleanup(func() { _ = listener.Close() })
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o750); err != nil {
		t.Fatal(err)
	}
}

func (w *watched) path(name string) string { return filepath.Join(w.directory, name) }

// next returns the next change.
func (w *watched) next() Change {
	w.t.Helper()
	select {
	case change := <-w.changes:
		return change
	case <-time.After(time.Minute):
		w.t.Fatal("no change was reported")
		return Change{}
	}
}

func (w *watched) comes(name string) Socket {
	w.t.Helper()
	change := w.next()
	if change.Removed || change.Scanned || change.Socket.Path != w.path(name) {
		w.t.Fatalf("%+v; want that %s comes", change, name)
	}
	return change.Socket
}

func (w *watched) goes(name string) Socket {
	w.t.Helper()
	change := w.next()
	if !change.Removed || change.Socket.Path != w.path(name) {
		w.t.Fatalf("%+v; want that %s goes", change, name)
	}
	return change.Socket
}

func (w *watched) scanned() {
	w.t.Helper()
	if change := w.next(); !change.Scanned {
		w.t.Fatalf("%+v; want the end of the first look", change)
	}
}

// quiet checks that no socket is reported.
func (w *watched) quiet() {
	w.t.Helper()
	select {
	case change := <-w.changes:
		w.t.Fatalf("%+v was reported", change)
	case <-time.After(50 * time.Millisecond):
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func TestRun_reportsExistingNewAndRemovedSockets(t *testing.T) {
	directory := shortDirectory(t)
	mkdir(t, filepath.Join(directory, "sub"))
	socket(t, filepath.Join(directory, "a-reg.sock"))
	socket(t, filepath.Join(directory, "sub", "b-reg.sock"))
	w := watch(t, directory)
	w.comes("a-reg.sock")
	w.comes("sub/b-reg.sock")
	w.scanned()
	socket(t, w.path("c-reg.sock"))
	w.comes("c-reg.sock")
	remove(t, w.path("a-reg.sock"))
	w.goes("a-reg.sock")
	remove(t, w.path("sub"))
	w.goes("sub/b-reg.sock")
}

func TestRun_makesTheDirectoryAndMakesItAgain(t *testing.T) {
	w := watch(t, shortDirectory(t))
	w.scanned()
	socket(t, w.path("a.sock"))
	w.comes("a.sock")
	remove(t, w.directory)
	w.goes("a.sock")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(w.directory); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the directory was not made again")
		}
	}
	socket(t, w.path("b.sock"))
	w.comes("b.sock")
}

func TestRun_seesNewSubdirectories(t *testing.T) {
	w := watch(t, shortDirectory(t))
	w.scanned()
	// What is made before the watch on the new directory is found by looking.
	mkdir(t, w.path("d/e"))
	socket(t, w.path("d/e/a.sock"))
	w.comes("d/e/a.sock")
	socket(t, w.path("d/e/b.sock"))
	w.comes("d/e/b.sock")
}

func TestRun_ignoresDotNamesAndOtherFiles(t *testing.T) {
	directory := shortDirectory(t)
	mkdir(t, filepath.Join(directory, ".hidden"))
	socket(t, filepath.Join(directory, ".hidden", "a.sock"))
	socket(t, filepath.Join(directory, ".a.sock"))
	if err := os.WriteFile(filepath.Join(directory, "file.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(directory, "dangling.sock")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop.sock", filepath.Join(directory, "loop.sock")); err != nil {
		t.Fatal(err)
	}
	w := watch(t, directory)
	w.scanned()
	socket(t, w.path(".b.sock"))
	w.quiet()
}

func TestRun_aRenameIsAGoingAndAComing(t *testing.T) {
	w := watch(t, shortDirectory(t))
	w.scanned()
	socket(t, w.path("a.sock"))
	before := w.comes("a.sock")
	if err := os.Rename(w.path("a.sock"), w.path("b.sock")); err != nil {
		t.Fatal(err)
	}
	w.goes("a.sock")
	if after := w.comes("b.sock"); after.Identity != before.Identity {
		t.Errorf("the same file has another identity: %v, before %v", after.Identity, before.Identity)
	}
	if err := os.Rename(w.path("b.sock"), filepath.Join(filepath.Dir(w.directory), "away.sock")); err != nil {
		t.Fatal(err)
	}
	w.goes("b.sock")
}

func TestRun_aReplacedSocketHasAnotherIdentity(t *testing.T) {
	w := watch(t, shortDirectory(t))
	w.scanned()
	socket(t, w.path("a.sock"))
	before := w.comes("a.sock")
	other := filepath.Join(filepath.Dir(w.directory), "other.sock")
	socket(t, other)
	if err := os.Rename(other, w.path("a.sock")); err != nil {
		t.Fatal(err)
	}
	if gone := w.goes("a.sock"); gone != before {
		t.Errorf("%v went, not %v", gone, before)
	}
	if after := w.comes("a.sock"); after.Identity == before.Identity {
		t.Error("another file has the same identity")
	}
}

func TestRun_rescansAfterAnOverflow(t *testing.T) {
	w := watch(t, shortDirectory(t))
	w.scanned()
	socket(t, w.path("a.sock"))
	w.comes("a.sock")
	// No reader takes events while far more happen than the queue holds
	// (fs.inotify.max_queued_events is 16384 by default).
	socket(t, w.path("b.sock"))
	for range 20000 {
		if err := os.WriteFile(w.path("noise"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(w.path("noise")); err != nil {
			t.Fatal(err)
		}
	}
	remove(t, w.path("a.sock"))
	socket(t, w.path("c.sock"))
	seen := map[string]bool{"a.sock": true}
	for !seen["b.sock"] || !seen["c.sock"] || seen["a.sock"] {
		change := w.next()
		seen[filepath.Base(change.Socket.Path)] = !change.Removed
	}
}
