package nodeside

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// settle is how long after the last event in /dev it is looked again, at
// doubling intervals from settleStart: the kernel makes a disk's node a moment
// before the disk can be opened and before /sys/block has it (device_add_disk,
// block/genhd.c).
const (
	settleStart = 5 * time.Millisecond
	settle      = time.Second
)

// await repeats a look, which finds nothing (nil) or fails with errChanged until
// it succeeds, each time that something happens among the device nodes. There
// is a bound, and one last look at it.
func (n *Node) await(ctx context.Context, w wish, look func() (*backend.Device, error)) (*backend.Device, error) {
	device, reason := look()
	if device != nil || (reason != nil && !errors.Is(reason, errChanged)) {
		return device, reason
	}
	events, leave, err := n.watch.join()
	if err != nil {
		return nil, err
	}
	defer leave()
	started := time.Now()
	bound := time.NewTimer(n.options.Wait)
	defer bound.Stop()
	pause := settleStart // what happened between the first look and join is settled, too
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		last := false
		select {
		case <-events:
			pause = settleStart
			again.Reset(0)
			continue
		case <-again.C:
		case <-bound.C:
			last = true
		case <-ctx.Done():
			return nil, n.absent(w, time.Since(started), reason, context.Cause(ctx))
		}
		if device, reason = look(); device != nil || (reason != nil && !errors.Is(reason, errChanged)) {
			n.noteLate(w, last, time.Since(started))
			return device, reason
		}
		if last {
			return nil, n.absent(w, n.options.Wait, reason, backend.ErrUnavailable)
		}
		if pause < settle {
			again.Reset(pause)
			pause *= 2
		}
	}
}

// absent says that the device did not come, and what can be done.
func (n *Node) absent(w wish, waited time.Duration, reason, class error) error {
	what := fmt.Sprintf("no disk of this machine has the serial number %s", w.serial)
	if reason != nil {
		what = reason.Error()
	}
	return fmt.Errorf("%w: after %s %s; see whether the volume is attached to this instance (aws ec2 describe-volumes --volume-ids %s), and whether %s is the machine's own",
		class, waited.Round(time.Millisecond), what, w.volumeID, n.options.DevRoot)
}

// noteLate tells of a machine whose device nodes come without events, as in a
// container that has a /dev of its own: each wait lasts to its bound there.
func (n *Node) noteLate(w wish, last bool, waited time.Duration) {
	if last {
		n.options.Logger.Warn("a device was there without an event; mount the machine's /dev into the container",
			slog.String("volume", w.volumeID), slog.String("directory", n.options.DevRoot), slog.Duration("waited", waited))
	}
}

// watch tells those who wait of events in a directory. There is one inotify
// instance for all of them, and none while nobody waits.
type watch struct {
	dir string

	mu      sync.Mutex
	watcher *fsnotify.Watcher
	waiting map[chan struct{}]struct{}
	done    chan struct{}
}

// join gives a channel that has a value when something happened since it was
// last read, and the way to leave.
func (w *watch) join() (events <-chan struct{}, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watcher == nil {
		if err := w.start(); err != nil {
			return nil, nil, fmt.Errorf("watch %s: %w: %w", w.dir, backend.ErrUnavailable, err)
		}
	}
	own := make(chan struct{}, 1)
	w.waiting[own] = struct{}{}
	return own, func() { w.leave(own) }, nil
}

func (w *watch) start() error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err := watcher.Add(w.dir); err != nil {
		return errors.Join(err, watcher.Close())
	}
	w.watcher, w.waiting, w.done = watcher, map[chan struct{}]struct{}{}, make(chan struct{})
	go w.spread(watcher, w.done)
	return nil
}

// leave ends the watch with its last user, and its goroutine with it.
func (w *watch) leave(own chan struct{}) {
	w.mu.Lock()
	delete(w.waiting, own)
	if len(w.waiting) > 0 {
		w.mu.Unlock()
		return
	}
	watcher, done := w.watcher, w.done
	w.watcher = nil
	w.mu.Unlock()
	_ = watcher.Close()
	<-done
}

// spread wakes everybody at each event. An error, such as a queue that ran
// over, is one too: something happened.
func (w *watch) spread(watcher *fsnotify.Watcher, done chan struct{}) {
	defer close(done)
	for {
		select {
		case event, open := <-watcher.Events:
			if !open {
				return
			}
			if !event.Has(fsnotify.Create) && !event.Has(fsnotify.Chmod) && !event.Has(fsnotify.Remove) {
				continue // each write to /dev/null is an event
			}
		case _, open := <-watcher.Errors:
			if !open {
				return
			}
		}
		w.mu.Lock()
		if w.watcher == watcher {
			for own := range w.waiting {
				select {
				case own <- struct{}{}:
				default:
				}
			}
		}
		w.mu.Unlock()
	}
}
