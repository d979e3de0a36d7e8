package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// The record of a freeze is a file next to that of the volume. It has the ID of the
// boot, and is there from before the freeze until after the thaw. The next process
// thaws the recorded filesystems only: the kernel does not report who froze a
// filesystem, and an administrator may have.
//
// FIFREEZE is the only question whether a filesystem is frozen, and it freezes. Hence
// a process that is killed between the record and the answer of FIFREEZE, or between
// the thaw and the removal of the record, leaves the record of a freeze that may be an
// administrator's. It is thawed: a copy that the administrator takes may then not be
// of one instant, whereas a freeze that no process ends blocks the workload for ever.
//
// Nothing is synced. A freeze ends with the kernel, so that its record only has to
// outlive the process; after a power loss it may be there, empty or gone, and its
// boot is over.

// recordFreeze notes that a filesystem of the volume is about to be frozen.
func (p *Pool) recordFreeze(volume string) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	file, err := openRegular(p.root, freezePath(volume), os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return fmt.Errorf("record the freeze of %s: %w", volume, err)
	}
	_, err = file.WriteString(boot)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("record the freeze of %s: %w", volume, errors.Join(err, p.forgetFreeze(volume)))
	}
	return nil
}

// forgetFreeze removes the record of a freeze. One that cannot be removed is emptied,
// which has the same effect: an administrator's later freeze must not seem recorded.
func (p *Pool) forgetFreeze(volume string) error {
	err := p.root.Remove(freezePath(volume))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	file, openErr := openRegular(p.root, freezePath(volume), os.O_WRONLY|os.O_TRUNC)
	if openErr != nil {
		return fmt.Errorf("remove the record of the freeze of %s: %w", volume, errors.Join(err, openErr))
	}
	return file.Close()
}

func freezePath(volume string) string { return path.Join(volumePath(volume), freezeFile) }

// froze reports whether a process of this boot recorded a freeze of the volume
// that it did not end.
func (p *Pool) froze(volume string) (bool, error) {
	recorded, err := readSmall(p.root, freezePath(volume))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the record of the freeze of %s: %w", volume, err)
	}
	boot, err := bootID()
	return string(recorded) == boot, err
}

// bootID is different after each boot of the machine (random(4)).
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// thawSource thaws a source that the driver froze for a snapshot and could not thaw,
// since it ended or the thaw failed.
func (p *Pool) thawSource(ctx context.Context, id string) error {
	if !isID(volumePrefix, id) {
		return nil
	}
	// Under the lock of the volume: a snapshot that is being made keeps its freeze.
	lock, err := p.awaitLock(ctx, volumePath(id), unix.LOCK_EX)
	if errors.Is(err, backend.ErrNotFound) {
		return nil // deleted, hence not mounted
	}
	if err != nil {
		return err
	}
	defer lock.release()
	froze, err := p.froze(id)
	if err != nil {
		return err
	}
	if !froze {
		return p.forgetFreeze(id)
	}
	data, err := p.openData(volumePath(id), os.O_RDONLY)
	if err == nil {
		err = errors.Join(p.thawUsers(ctx, id, data), data.Close())
	}
	if err != nil && !errors.Is(err, backend.ErrDataLoss) {
		return err
	}
	return p.forgetFreeze(id)
}
