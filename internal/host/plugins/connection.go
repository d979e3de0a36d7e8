package plugins

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// keep watches the instance's connection. When it ends, keep dials the driver at once.
// That detects a driver that crashed and left its socket, and one that listens again.
func (i *instance) keep(ctx context.Context) error {
	watch, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { i.watchReadiness(watch) })
	defer watcher.Wait()
	defer stop()
	var last time.Time
	timing := i.manager.timing
	for pause := timing.firstRetry; ; last = time.Now() {
		select {
		case <-ctx.Done():
			i.remove() //nolint:contextcheck // connections are closed in the time of Run
			return nil
		case <-i.now().lost:
		}
		if err := i.reach(ctx, false); err != nil {
			if ctx.Err() != nil {
				continue
			}
			i.goneAway(err)
		} else if pause = timing.nextPause(pause, time.Since(last)); time.Since(last) < pause {
			// A driver that keeps closing connections is not polled without pause.
			_ = concurrency.Sleep(ctx, pause)
		}
		if err := i.revive(ctx); err != nil {
			i.remove() //nolint:contextcheck // connections are closed in the time of Run
			return err
		}
	}
}

// nextPause returns how long to wait between two examinations of a driver.
func (t timing) nextPause(pause, passed time.Duration) time.Duration {
	if passed > t.longestRetry {
		return t.firstRetry
	}
	return min(2*pause, t.longestRetry)
}

// reach finds out whether a server listens.
func (i *instance) reach(ctx context.Context, wait bool) error {
	ctx, cancel := context.WithTimeout(ctx, i.manager.timing.dial)
	defer cancel()
	return i.manager.network.Reach(ctx, i.endpoint, wait)
}

// revive returns nil when the driver answers again, or the context ended, and
// an error when it is not the same driver any more.
func (i *instance) revive(ctx context.Context) error {
	for pause := i.manager.timing.firstRetry; ; pause = min(2*pause, i.manager.timing.longestRetry) {
		err := i.reconnect(ctx)
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // the context ended, as it was meant to
		}
		if errors.Is(err, errOther) {
			return err
		}
		i.goneAway(err)
		if !i.manager.network.Appears(ctx, i.endpoint, pause) {
			return nil
		}
	}
}

var errOther = errors.New("it is another driver")

// reconnect calls the driver at the socket again: it may be another version.
func (i *instance) reconnect(ctx context.Context) error {
	if err := i.reach(ctx, true); err != nil {
		return err
	}
	found, err := i.introduce(ctx)
	if err != nil {
		return err
	}
	if before := i.now().driver.Node.ID; found.driver.Node.ID != before {
		return errors.Join(fmt.Errorf("driver %s says that this node is %q, and before %q: %w", i.name,
			found.driver.Node.ID, before, errOther),
			found.driver.Client.Close())
	}
	i.set(found) //nolint:contextcheck // connections are closed in the time of Run
	i.manager.returned()
	i.manager.logger.Info("the driver answers again", "driver", i.name, "version", found.version, "socket", i.endpoint)
	return nil
}

// returned notifies the waiting callers that an instance answers again.
func (m *Manager) returned() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.announce()
}

// goneAway marks the instance as not serving, and keeps it.
func (i *instance) goneAway(err error) {
	m := i.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	i.failure = err
	if i.away {
		return
	}
	i.away, i.since = true, time.Now()
	m.announce()
	m.logger.Warn("the driver does not answer", "driver", i.name, "socket", i.endpoint, "error", err)
}

// appears waits until something happens to a socket's file, and for pause at
// most. It is false when the context ended.
func appears(ctx context.Context, path string, pause time.Duration) bool {
	events, close := watchDirectory(filepath.Dir(path))
	defer close()
	if isNewborn(path) {
		// The file may have appeared after the last attempt and before this watch.
		pause = min(pause, newbornAge)
	}
	limit := time.NewTimer(pause)
	defer limit.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-limit.C:
			return true
		case event, open := <-events:
			switch {
			case !open:
				events = nil
			case event.Name == path && event.Has(fsnotify.Create):
				return true
			}
		}
	}
}

// watchDirectory returns no events for a missing directory; the caller's pause bounds
// the delay then.
func watchDirectory(directory string) (<-chan fsnotify.Event, func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, func() {}
	}
	stop := func() { _ = watcher.Close() }
	if watcher.Add(directory) != nil {
		stop()
		return nil, func() {}
	}
	return watcher.Events, stop
}
