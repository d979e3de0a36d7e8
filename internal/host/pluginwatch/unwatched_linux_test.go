package pluginwatch

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// A machine gives a user so many inotify instances and watches
// (fs.inotify.max_user_instances, fs.inotify.max_user_watches). Without any, the
// watcher polls.
func TestRun_pollsWithoutInotify(t *testing.T) {
	directory := shortDirectory(t)
	mkdir(t, directory)
	w := &watched{t: t, directory: directory, changes: make(chan Change)}
	socket(t, w.path("first.sock"))
	watcher := New(directory, w.changes, slog.New(slog.DiscardHandler))
	var given atomic.Bool
	watcher.open = func() (*fsnotify.Watcher, error) {
		if !given.Load() {
			return nil, os.NewSyscallError("inotify_init1", unix.EMFILE)
		}
		return fsnotify.NewWatcher()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w.comes("first.sock")
	w.scanned()
	socket(t, w.path("second.sock"))
	w.comes("second.sock")
	if err := os.Remove(w.path("first.sock")); err != nil {
		t.Fatal(err)
	}
	w.goes("first.sock")
	given.Store(true)
	socket(t, w.path("third.sock"))
	w.comes("third.sock")
}
