// Package pluginwatch tells which registration sockets exist below a
// directory, and when they come, go or are replaced. It is told of changes by
// the kernel and then inspects the directory itself: what counts is what is
// there, not which events arrived, so that a rename or a lost event cannot
// leave a wrong picture. Names that begin with a dot are ignored, of files and
// of directories; so are files other than sockets.
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

// rescanEvery bounds how long a change may go unseen that no event tells of:
// what a symbolic link leads to, a file that cannot be examined, and whether
// a server listens on a file that may be a socket. Where there is none of these,
// nothing is inspected without an event.
const rescanEvery = time.Minute

// lookEvery is how often everything is inspected while the kernel does not tell
// of changes, because its limits for watches are reached: as the kubelet does
// its rounds.
const lookEvery = time.Second

// The pauses before a registration directory that cannot be made or read is
// tried once more.
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

	open    func() (*fsnotify.Watcher, error)
	events  *fsnotify.Watcher // nil when there is none to be had
	deaf    error             // why the kernel does not tell of every change
	told    bool              // of that
	known   map[string]Identity
	scanned bool
	again   bool          // files that were not sockets are inspected anew
	untold  bool          // there are files whose changes no event tells of
	failed  time.Duration // the pause after the last failure, 0 if there was none
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
// is no error. The sockets that exist already are reported first.
func (w *Watcher) Run(ctx context.Context) (err error) {
	defer func() {
		if w.events != nil {
			err = errors.Join(err, w.events.Close())
		}
	}()
	defer w.probes.close()
	for {
		retry, err := w.look(ctx)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		if err := w.wait(ctx, w.pause(retry)); err != nil {
			return ignoreEnd(ctx, err)
		}
	}
}

// pause is when to look again without an event; 0 is never.
func (w *Watcher) pause(retry bool) time.Duration {
	switch {
	case retry:
		w.failed = min(max(2*w.failed, firstRetry), longestRetry)
		return w.failed
	case w.deaf != nil:
		w.failed = 0
		return lookEvery
	case w.untold:
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

// wait returns when there is a reason to look again. Everything that has
// arrived by then is answered by one look.
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
			w.again = true
		case <-w.probes.told:
		case event, open := <-events:
			if !open {
				return fmt.Errorf("watch %s: the kernel's queue was closed", w.directory)
			}
			if !w.concerns(event) {
				continue
			}
		case err := <-lost:
			// An overflow lost events; the look that follows finds what they told.
			w.logger.Warn("events of the registration directory were lost, looking at all of it", "directory", w.directory, "error", err)
		}
		w.drain()
		return nil
	}
}

// concerns leaves out what happens next to the directory, in its parent.
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

// look compares the directory with what is known and sends the difference.
// retry asks for another look soon.
func (w *Watcher) look(ctx context.Context) (retry bool, err error) {
	found, doubtful := map[string]Identity{}, map[string]bool{}
	w.untold, w.deaf = false, nil
	if err := os.MkdirAll(w.directory, 0o750); err != nil {
		w.logger.Warn("the registration directory cannot be made", "directory", w.directory, "error", err)
		retry = true
	} else if err := w.watchParent(); err != nil {
		w.logger.Warn("the directory above the registration directory cannot be watched", "directory", w.directory, "error", err)
		return true, nil
	} else if err := w.scan(ctx, w.directory, found, doubtful); err != nil {
		w.logger.Warn("the registration directory cannot be read", "directory", w.directory, "error", err)
		return true, nil // unknown is not empty: no plugin is unregistered for it
	}
	w.tellDeaf()
	w.untold = w.untold || len(doubtful) > 0
	w.probes.forget(doubtful, w.again)
	w.again = false
	return retry, w.report(ctx, found)
}

// watchParent makes the removal of the directory itself an event of its parent.
// The event that a watched directory sends of its own end is not enough: seen
// on Linux 6.18, it does not come when the directory was open in that instant.
func (w *Watcher) watchParent() error {
	return w.listen(filepath.Dir(w.directory))
}

// listen has the kernel tell of a directory's changes. What it will not is
// looked at without being told.
func (w *Watcher) listen(directory string) error {
	var err error
	if w.events == nil {
		if w.events, err = w.open(); err != nil {
			w.events, w.deaf = nil, err
			return nil //nolint:nilerr // it is told by tellDeaf
		}
	}
	err = w.events.Add(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w.deaf = cmp.Or(w.deaf, err)
	return nil
}

// tellDeaf logs that the kernel does not tell of changes, and that it does again.
func (w *Watcher) tellDeaf() {
	switch deaf := w.deaf != nil; {
	case deaf && !w.told:
		w.logger.Warn("changes of the registration directory are not told of, looking at it once a second; are the limits in /proc/sys/fs/inotify reached?",
			"directory", w.directory, "error", w.deaf)
	case !deaf && w.told:
		w.logger.Info("changes of the registration directory are told of again", "directory", w.directory)
	}
	w.told = w.deaf != nil
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

// scan adds the sockets of a directory and of those below. The watch comes
// before the reading: what appears in between is either read or told of. Adding
// a watch that exists changes nothing (inotify_add_watch(2)).
func (w *Watcher) scan(ctx context.Context, directory string, found map[string]Identity, doubtful map[string]bool) error {
	if err := w.listen(directory); err != nil {
		return err
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		path := filepath.Join(directory, entry.Name())
		w.untold = w.untold || entry.Type()&fs.ModeSymlink != 0
		if !entry.IsDir() {
			w.examine(ctx, path, found, doubtful)
			continue
		}
		if err := w.scan(ctx, path, found, doubtful); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// examine adds one file if it is a socket. One that cannot be inspected stays
// what it was known as: it hides no other file. One of which the mode does not
// tell is dialled, and the verdict is a reason to look again.
func (w *Watcher) examine(ctx context.Context, path string, found map[string]Identity, doubtful map[string]bool) {
	identity, what, err := w.classify(path)
	if err != nil {
		w.logger.Warn("a file in the registration directory cannot be examined", "file", path, "error", err)
		w.untold = true
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
