package nodeside

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// After an event in /dev, the device is polled at intervals that double from pollFirst to
// pollLast, because the kernel makes a disk's node shortly before the disk can be opened
// and before /sys/block has it (device_add_disk, block/genhd.c).
const (
	pollFirst = 5 * time.Millisecond
	pollLast  = time.Second
)

// await polls at each event among the device nodes until poll returns a device or an
// error other than errChanged. It polls a last time when Options.Wait has passed.
func (n *Node) await(ctx context.Context, w request, poll func() (*backend.Device, error)) (*backend.Device, error) {
	device, reason := poll()
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
	pause := pollFirst // the first poll also covers events before join
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		last := false
		select {
		case <-events:
			pause = pollFirst
			again.Reset(0)
			continue
		case <-again.C:
		case <-bound.C:
			last = true
		case <-ctx.Done():
			return nil, n.absent(w, time.Since(started), reason, context.Cause(ctx))
		}
		if device, reason = poll(); device != nil || (reason != nil && !errors.Is(reason, errChanged)) {
			n.noteLate(w, last, time.Since(started))
			return device, reason
		}
		if last {
			return nil, n.absent(w, n.options.Wait, reason, backend.ErrUnavailable)
		}
		if pause < pollLast {
			again.Reset(pause)
			pause *= 2
		}
	}
}

// absent is the error for a device that did not appear.
func (n *Node) absent(w request, waited time.Duration, reason, class error) error {
	what := fmt.Sprintf("no disk of this machine has the serial number %s", w.serial)
	if reason != nil {
		what = reason.Error()
	}
	return fmt.Errorf("%w: after %s %s; check that the volume is attached to this instance (aws ec2 describe-volumes --volume-ids %s), and that %s is the machine's /dev",
		class, waited.Round(time.Millisecond), what, w.volumeID, n.options.DevRoot)
}

// noteLate warns if a device appeared without an event, as in a container with a separate
// /dev. Every wait lasts for Options.Wait there.
func (n *Node) noteLate(w request, last bool, waited time.Duration) {
	if last {
		n.options.Logger.Warn("a device appeared without an event; mount the machine's /dev into the container",
			"volume", w.volumeID, "directory", n.options.DevRoot, "waited", waited)
	}
}

// watch distributes the events of a directory to all waits. They share one inotify
// instance, which exists only while there are waits.
type watch struct {
	dir string

	mu      sync.Mutex
	watcher *fsnotify.Watcher
	waiting map[chan struct{}]struct{}
	done    chan struct{}
}

// join returns a channel that has a value if an event happened since its last read, and a
// function that ends the subscription.
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

// leave removes a subscription; without subscriptions the watch and its goroutine end.
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

// spread wakes all subscribers at each event. An error, such as an overflow of the queue,
// counts as an event.
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
