package local

import (
	"errors"
	"fmt"
	"os"
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
	if f.expired {
		return errors.Join(f.late(), fs.Thaw(dir))
	}
	f.dirs = append(f.dirs, dir)
	return nil
}

// expire ends the freeze from outside, whatever the cut is waiting for.
func (f *frozen) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expired = true
	_ = f.thawAll() // thaw repeats it and reports
}

func (f *frozen) thaw() error {
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.thawAll()
	f.dirs = nil
	if f.expired {
		err = errors.Join(f.late(), err)
	}
	return err
}

func (f *frozen) thawAll() error {
	var failed []error
	for _, dir := range f.dirs {
		failed = append(failed, fs.Thaw(dir))
	}
	return errors.Join(failed...)
}

func (f *frozen) late() error {
	return fmt.Errorf("%w: the filesystem could not be frozen and cut in time; repeat when it has less to write", backend.ErrUnavailable)
}
