package local

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
)

// frozen is a set of filesystems that are kept frozen for a bounded time.
type frozen struct {
	pool    *Pool
	mu      sync.Mutex
	mounts  []frozenMount
	timer   *time.Timer
	expired bool
}

// frozenMount is a filesystem that this process froze, of a volume.
type frozenMount struct {
	dir    *os.File
	volume string
}

// add freezes one more, after it recorded that. A filesystem that an administrator
// froze, to take a snapshot, is fine and stays frozen, unless
// the process ends before it removed the record again: see freezerecord_linux.go.
func (f *frozen) add(volume string, dir *os.File) error {
	if err := f.endEarlier(volume, dir); err != nil {
		return err
	}
	if err := f.pool.recordFreeze(volume); err != nil {
		return err
	}
	// Freezing writes dirty pages and may take long: not under the lock, which expire
	// needs to thaw the others.
	err := f.pool.points.Hit("local/freeze/recorded")
	if err == nil {
		err = fs.Freeze(dir)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		forgotten := f.forgetUnused(volume)
		if errors.Is(err, backend.ErrBusy) {
			return forgotten
		}
		return errors.Join(err, forgotten)
	}
	f.mounts = append(f.mounts, frozenMount{dir, volume})
	if f.expired {
		return errors.Join(f.late(), f.thawAll())
	}
	return f.pool.points.Hit("local/freeze/frozen")
}

// endEarlier thaws the filesystems that an earlier call froze and could not thaw.
// Otherwise it would seem to be frozen by an administrator.
func (f *frozen) endEarlier(volume string, dir *os.File) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.mounts, func(m frozenMount) bool { return m.volume == volume }) {
		return nil // the record is of this call
	}
	froze, err := f.pool.froze(volume)
	if err != nil || !froze {
		return err
	}
	if err := fs.Thaw(dir); err != nil {
		return fmt.Errorf("%w: %w", errStillFrozen, err)
	}
	return nil
}

// errStillFrozen: a filesystem could not be thawed, and its workload blocks until
// a retry succeeds.
var errStillFrozen = fmt.Errorf("%w: a filesystem is still frozen; the driver retries to thaw it",
	backend.ErrUnavailable)

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
	var thawed []string
	f.mounts = slices.DeleteFunc(f.mounts, func(m frozenMount) bool {
		err := fs.Thaw(m.dir)
		if err != nil {
			failed = append(failed, fmt.Errorf("%w: %w", errStillFrozen, err))
			return false
		}
		thawed = append(thawed, m.volume)
		return true
	})
	if len(thawed) > 0 {
		failed = append(failed, f.pool.points.Hit("local/freeze/thawed"))
	}
	for _, volume := range thawed {
		failed = append(failed, f.forgetUnused(volume))
	}
	return errors.Join(failed...)
}

// forgetUnused removes the record of a volume of which no filesystem is frozen.
func (f *frozen) forgetUnused(volume string) error {
	if slices.ContainsFunc(f.mounts, func(m frozenMount) bool { return m.volume == volume }) {
		return nil
	}
	return f.pool.forgetFreeze(volume)
}

func (f *frozen) late() error {
	return fmt.Errorf("%w: the filesystem could not be frozen and copied in time; repeat when less is written to it",
		backend.ErrUnavailable)
}
