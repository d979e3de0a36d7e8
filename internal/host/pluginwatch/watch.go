// Package pluginwatch reports which registration sockets exist below a directory,
// and when they appear, go or are replaced. An event of the kernel makes it read
// the directory; its result depends on what exists, not on which events arrived, so
// that a rename or a lost event cannot leave a wrong state. It ignores files and
// directories whose names begin with a dot, and files other than sockets.
package pluginwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// rescanEvery is the interval of reading the directory while changes without an event are
// possible: behind a symbolic link, of a file that cannot be examined, and of whether
// a server listens on a file that may be a socket. Without any of these, the
// directory is read after events only.
const rescanEvery = time.Minute

// pollEvery is the interval of reading the directory while inotify is not available,
// because its limits are reached. It is the period of the kubelet's own reconciler.
const pollEvery = time.Second

// The pauses before a registration directory that cannot be made or read is
// tried again.
const (
	firstRetry   = time.Second
	longestRetry = 2 * time.Minute
)

// Socket is a socket file. A file that was removed and made again under the
// same path has another Identity.
type Socket struct {
	Path     string
	Identity Identity
}

// Change is one socket that appeared or went away. A replaced socket goes away
// first and then appears.
type Change struct {
	Socket  Socket
	Removed bool
	// Scanned says, once and without a Socket, that everything that was there at
	// the start has been reported.
	Scanned bool
}

// Watcher watches one directory and all below it.
type Watcher struct {
	directory string
	changes   chan<- Change
	logger    *slog.Logger

	spelling spelling
	classify func(path string) (Identity, kind, error)
	probes   *probes

	open            func() (*fsnotify.Watcher, error)
	events          *fsnotify.Watcher // nil while inotify is not available
	unwatched       error             // why inotify does not report every change
	unwatchedLogged bool
	known           map[string]Identity
	scanned         bool
	recheck         bool          // files that were not sockets are dialled again
	unobserved      bool          // there are files whose changes are not events
	failed          time.Duration // the pause after the last failure, 0 if there was none
}

// New makes a Watcher that sends to changes, which the receiver must keep
// reading until Run returns.
func New(directory string, changes chan<- Change, logger *slog.Logger) *Watcher {
	spelling := systemSpelling()
	return &Watcher{
		directory: spelling.normalize(directory), changes: changes, logger: logger, known: map[string]Identity{},
		spelling: spelling, classify: classify, probes: newProbes(dialUnix), open: fsnotify.NewWatcher,
	}
}

// Run makes the directory if need be and watches until the context ends, which
// is not an error. The sockets that exist already are reported first.
func (w *Watcher) Run(ctx context.Context) (err error) {
	defer func() {
		if w.events != nil {
			err = errors.Join(err, w.events.Close())
		}
	}()
	defer w.probes.close()
	for {
		retry, err := w.reconcile(ctx)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		if err := w.wait(ctx, w.pause(retry)); err != nil {
			return ignoreEnd(ctx, err)
		}
	}
}

// pause is the delay until the directory is read without an event; 0 is never.
func (w *Watcher) pause(retry bool) time.Duration {
	switch {
	case retry:
		w.failed = min(max(2*w.failed, firstRetry), longestRetry)
		return w.failed
	case w.unwatched != nil:
		w.failed = 0
		return pollEvery
	case w.unobserved:
		w.failed = 0
		return rescanEvery
	}
	w.failed = 0
	return 0
}

func ignoreEnd(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// wait returns when there is a reason to read the directory, and drains the events
// that arrived by then: one reading covers them.
func (w *Watcher) wait(ctx context.Context, pause time.Duration) error {
	var due <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		due = timer.C
	}
	var events <-chan fsnotify.Event
	var lost <-chan error
	if w.events != nil {
		events, lost = w.events.Events, w.events.Errors
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-due:
			w.recheck = true
		case <-w.probes.changed:
		case event, open := <-events:
			if !open {
				return fmt.Errorf("watch %s: the kernel's queue was closed", w.directory)
			}
			if !w.concerns(event) {
				continue
			}
		case err := <-lost:
			// An overflow lost events; the reading that follows finds their changes.
			w.logger.Warn("events of the registration directory were lost, reading all of it",
				"directory", w.directory, "error", err)
		}
		w.drain()
		return nil
	}
}

// concerns reports whether an event is of the directory, not of its siblings.
func (w *Watcher) concerns(event fsnotify.Event) bool {
	return w.spelling.within(w.directory, event.Name)
}

func (w *Watcher) drain() {
	for w.events != nil {
		select {
		case _, open := <-w.events.Events:
			if !open {
				return
			}
		default:
			return
		}
	}
}

// reconcile compares the directory with the known sockets and sends the differences.
// With retry it must be repeated soon.
func (w *Watcher) reconcile(ctx context.Context) (retry bool, err error) {
	found, doubtful := map[string]Identity{}, map[string]bool{}
	w.unobserved, w.unwatched = false, nil
	if err := os.MkdirAll(w.directory, 0o750); err != nil {
		w.logger.Warn("the registration directory cannot be made", "directory", w.directory, "error", err)
		retry = true
	} else if err := w.watchParent(); err != nil {
		w.logger.Warn("the directory above the registration directory cannot be watched",
			"directory", w.directory, "error", err)
		return true, nil
	} else if err := w.scan(ctx, w.directory, found, doubtful); err != nil {
		w.logger.Warn("the registration directory cannot be read", "directory", w.directory, "error", err)
		return true, nil // an unreadable directory is not an empty one: every plugin stays registered
	}
	w.logUnwatched()
	w.unobserved = w.unobserved || len(doubtful) > 0
	w.probes.forget(doubtful, w.recheck)
	w.recheck = false
	return retry, w.report(ctx, found)
}

// watchParent makes the removal of the directory itself an event of its parent. The
// event of a watched directory for its own removal is not enough: Linux 6.18 was
// seen not to send it if the directory was open at that moment.
func (w *Watcher) watchParent() error {
	return w.listen(filepath.Dir(w.directory))
}

// listen adds an inotify watch of a directory. If that fails, unwatched has the
// reason and the directory is polled.
func (w *Watcher) listen(directory string) error {
	var err error
	if w.events == nil {
		if w.events, err = w.open(); err != nil {
			w.events, w.unwatched = nil, err
			return nil //nolint:nilerr // logUnwatched logs it
		}
	}
	err = w.events.Add(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w.unwatched = cmp.Or(w.unwatched, err)
	return nil
}

// logUnwatched logs once that inotify does not report changes, and once that it does
// again.
func (w *Watcher) logUnwatched() {
	switch now := w.unwatched != nil; {
	case now && !w.unwatchedLogged:
		w.logger.Warn("inotify does not report changes of the registration directory, polling once a second; are the limits in /proc/sys/fs/inotify reached?",
			"directory", w.directory, "error", w.unwatched)
	case !now && w.unwatchedLogged:
		w.logger.Info("inotify reports changes of the registration directory again", "directory", w.directory)
	}
	w.unwatchedLogged = w.unwatched != nil
}

func (w *Watcher) report(ctx context.Context, found map[string]Identity) error {
	for _, path := range slices.Sorted(maps.Keys(w.known)) {
		if now, exists := found[path]; exists && now == w.known[path] {
			continue
		}
		if err := w.send(ctx, Change{Socket: Socket{path, w.known[path]}, Removed: true}); err != nil {
			return err
		}
		delete(w.known, path)
	}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		if _, known := w.known[path]; known {
			continue
		}
		w.known[path] = found[path]
		if err := w.send(ctx, Change{Socket: Socket{path, found[path]}}); err != nil {
			return err
		}
	}
	if w.scanned {
		return nil
	}
	w.scanned = true
	return w.send(ctx, Change{Scanned: true})
}

func (w *Watcher) send(ctx context.Context, change Change) error {
	select {
	case w.changes <- change:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// scan adds the sockets of a directory and of those below. It adds the watch before
// it reads: what appears in between is read or becomes an event. Adding a watch
// that exists changes nothing (inotify_add_watch(2)).
func (w *Watcher) scan(ctx context.Context, path string, found map[string]Identity, doubtful map[string]bool) error {
	if err := w.listen(path); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		below := filepath.Join(path, entry.Name())
		w.unobserved = w.unobserved || entry.Type()&fs.ModeSymlink != 0
		if !entry.IsDir() {
			w.examine(ctx, below, found, doubtful)
			continue
		}
		if err := w.scan(ctx, below, found, doubtful); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// examine adds one file if it is a socket. A file that cannot be inspected keeps its
// known state. A file whose mode does not show its type is dialled, and the outcome
// wakes the watcher.
func (w *Watcher) examine(ctx context.Context, path string, found map[string]Identity, doubtful map[string]bool) {
	identity, what, err := w.classify(path)
	if err != nil {
		w.logger.Warn("a file in the registration directory cannot be examined", "file", path, "error", err)
		w.unobserved = true
		if known, ok := w.known[path]; ok {
			found[path] = known
		}
		return
	}
	if what == maybe {
		doubtful[path] = true
		what = w.probes.ask(ctx, path, identity)
	}
	if what == isSocket {
		found[path] = identity
	}
}
