package pluginwatch

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestRun_aDirectoryThatIsRenamedIsWatchedUnderItsNewName(t *testing.T) {
	w := watch(t, shortDirectory(t))
	w.scanned()
	mkdir(t, w.path("a"))
	socket(t, w.path("a/x.sock"))
	w.comes("a/x.sock")
	rename(t, w.path("a"), w.path("b"))
	w.goes("a/x.sock")
	w.comes("b/x.sock")
	socket(t, w.path("b/y.sock"))
	w.comes("b/y.sock")
	rename(t, w.path("b"), w.path(".b")) // out of sight
	w.goes("b/x.sock")
	w.goes("b/y.sock")
	socket(t, w.path(".b/z.sock"))
	w.quiet()
	rename(t, w.path(".b"), w.path("c"))
	w.comes("c/x.sock")
	w.comes("c/y.sock")
	w.comes("c/z.sock")
}

func TestRun_aDirectoryThatReplacesAnotherIsWatched(t *testing.T) {
	w := watch(t, shortDirectory(t))
	w.scanned()
	mkdir(t, w.path("a"))
	socket(t, w.path("a/x.sock"))
	w.comes("a/x.sock")
	outside := filepath.Join(filepath.Dir(w.directory), "outside")
	mkdir(t, outside)
	socket(t, filepath.Join(outside, "y.sock"))
	rename(t, w.path("a"), filepath.Join(filepath.Dir(w.directory), "gone"))
	w.goes("a/x.sock")
	rename(t, outside, w.path("a"))
	w.comes("a/y.sock")
	socket(t, w.path("a/z.sock"))
	w.comes("a/z.sock")
}

func TestRun_theDirectoryItselfMayBeReplaced(t *testing.T) {
	w := watch(t, shortDirectory(t))
	w.scanned()
	socket(t, w.path("a.sock"))
	w.comes("a.sock")
	other := w.directory + "-other"
	mkdir(t, other)
	socket(t, filepath.Join(other, "b.sock"))
	rename(t, w.directory, w.directory+"-old")
	w.goes("a.sock")
	// It was made again meanwhile, and is empty, which os.Rename does not replace.
	if err := unix.Rename(other, w.directory); err != nil {
		t.Fatal(err)
	}
	w.comes("b.sock")
	socket(t, w.path("c.sock"))
	w.comes("c.sock")
	remove(t, w.directory)
	w.goes("b.sock")
	w.goes("c.sock")
}

// In the kubelet a dot directory that is there at the start is watched, and one
// that is made later is not.
func TestRun_dotDirectoriesAreIgnoredWheneverTheyCome(t *testing.T) {
	directory := shortDirectory(t)
	mkdir(t, filepath.Join(directory, ".before"))
	w := watch(t, directory)
	w.scanned()
	mkdir(t, w.path(".after"))
	socket(t, w.path(".before/a.sock"))
	socket(t, w.path(".after/a.sock"))
	w.quiet()
}

func TestRun_aFileThatBecomesASocketComes(t *testing.T) {
	w := watch(t, shortDirectory(t))
	w.scanned()
	if err := os.WriteFile(w.path("a.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.quiet()
	remove(t, w.path("a.sock"))
	socket(t, w.path("a.sock"))
	w.comes("a.sock")
	mkdir(t, w.path("b.sock")) // a directory of that name
	w.quiet()
}

func TestRun_aSocketWithoutAServerIsReported(t *testing.T) {
	w := watch(t, shortDirectory(t))
	w.scanned()
	listener, err := net.Listen("unix", w.path("a.sock"))
	if err != nil {
		t.Fatal(err)
	}
	stale := w.comes("a.sock")
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	w.quiet() // its end does not change the file; the next dial shows it
	remove(t, w.path("a.sock"))
	w.goes("a.sock")
	socket(t, w.path("a.sock"))
	if now := w.comes("a.sock"); now.Identity == stale.Identity {
		t.Error("the new socket has the identity of the stale one")
	}
}

// The directory is read without an event only if changes without events are possible.
func TestPause_isForChangesWithoutEvents(t *testing.T) {
	directory := shortDirectory(t)
	mkdir(t, directory)
	changes := make(chan Change, 8)
	w := New(directory, changes, slog.New(slog.DiscardHandler))
	w.events = newEvents(t)
	reconcile := func() time.Duration {
		t.Helper()
		retry, err := w.reconcile(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return w.pause(retry)
	}
	socket(t, filepath.Join(directory, "a.sock"))
	if pause := reconcile(); pause != 0 {
		t.Errorf("it rescans after %s", pause)
	}
	if err := os.Symlink("/nowhere/b.sock", filepath.Join(directory, "b.sock")); err != nil {
		t.Fatal(err)
	}
	if pause := reconcile(); pause != rescanEvery {
		t.Errorf("with a link it rescans after %s", pause)
	}
	remove(t, directory)
	if err := os.WriteFile(directory, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []time.Duration{firstRetry, 2 * firstRetry, 4 * firstRetry} {
		if pause := reconcile(); pause != want {
			t.Errorf("with a file at its path it retries after %s, not %s", pause, want)
		}
	}
	for range 10 {
		reconcile()
	}
	if pause := reconcile(); pause != longestRetry {
		t.Errorf("and after %s in the end", pause)
	}
}

func newEvents(t *testing.T) *fsnotify.Watcher {
	t.Helper()
	events, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = events.Close() })
	return events
}
