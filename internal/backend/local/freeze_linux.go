package local

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node/fs"
)

// frozen is a set of filesystems that are kept frozen for a bounded time.
type frozen struct {
	mu      sync.Mutex
	dirs    []*os.File
	timer   *time.Timer
	expired bool
}

// add freezes one more. A filesystem that somebody else froze, to take a
// snapshot of what he prepared, is fine and stays his to thaw.
func (f *frozen) add(dir *os.File) error {
	// Freezing writes out what is dirty and may take long: not under the lock,
	// which expire needs to thaw the others.
	err := fs.Freeze(dir)
	if errors.Is(err, backend.ErrBusy) {
		return nil
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirs = append(f.dirs, dir)
	if f.expired {
		return errors.Join(f.late(), f.thawAll())
	}
	return nil
}

// errStillFrozen: a filesystem could not be thawed, and its workload blocks until
// a retry succeeds.
var errStillFrozen = fmt.Errorf("%w: a filesystem is still frozen; the driver retries to thaw it", backend.ErrUnavailable)

// expire ends the freeze from outside, even while the snapshot waits.
func (f *frozen) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expired = true
	_ = f.thawAll() // thaw repeats what failed and reports
}

func (f *frozen) thaw() error {
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.thawAll()
	if f.expired {
		err = errors.Join(f.late(), err)
	}
	return err
}

func (f *frozen) thawAll() error {
	var failed []error
	f.dirs = slices.DeleteFunc(f.dirs, func(dir *os.File) bool {
		err := fs.Thaw(dir)
		if err != nil {
			failed = append(failed, fmt.Errorf("%w: %w", errStillFrozen, err))
		}
		return err == nil
	})
	return errors.Join(failed...)
}

func (f *frozen) late() error {
	return fmt.Errorf("%w: the filesystem could not be frozen and cut in time; repeat when it has less to write", backend.ErrUnavailable)
}
