package local

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/durable"
)

// discard removes an entry: one rename into the trash, which is final, then the removal
// of the files. tidy removes the remaining ones.
func (p *Pool) discard(entry string) error {
	if a := p.ledger.get(path.Base(entry)); a.mayShare || path.Dir(entry) == snapshotsDir {
		defer p.measureSoon() // its blocks may become another volume's own
	}
	rest, err := p.moveToTrash(entry)
	if err != nil {
		return err
	}
	if err := p.points.Hit("local/discard/renamed"); err != nil {
		return err
	}
	p.discarded.Store(time.Now().UnixNano())
	if err := p.root.RemoveAll(rest); err != nil {
		p.log.Warn("deleted files could not be removed; the driver retries", "path", rest, "error", err)
		return nil
	}
	return p.points.Hit("local/discard/removed")
}

// moveToTrash makes the removal of an entry durable and returns its new name.
// When only the fsync of a directory failed, the entry is gone for now and may
// come back after a power loss: syncRenames repeats the fsync before any deletion
// succeeds.
func (p *Pool) moveToTrash(entry string) (string, error) {
	rest := path.Join(trashDir, path.Base(entry)+"."+rand.Text())
	err := durable.Rename(p.root, entry, rest)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.renames.add(trashDir, path.Dir(entry))
	}
	return rest, err
}

// delete removes an entry that others know. A failure leaves it unresolved: the
// rename may have taken place.
func (p *Pool) delete(entry string) error {
	err := p.discard(entry)
	switch {
	case err == nil:
		p.forget(entry)
	case !errors.Is(err, fs.ErrNotExist):
		p.leaveUnresolved(entry, err)
	}
	return err
}

// forget takes an entry out of the index and the ledger.
func (p *Pool) forget(entry string) {
	id := path.Base(entry)
	p.index.forget(id)
	p.ledger.remove(id)
}

// forgetIfGone forgets an entry whose directory is not there, such as one that
// was removed by hand.
func (p *Pool) forgetIfGone(entry string) {
	if _, err := p.root.Lstat(entry); errors.Is(err, fs.ErrNotExist) {
		p.forget(entry)
	}
}

// undo removes the entry of a failed operation, whose error is returned.
func (p *Pool) undo(entry string, cause error) error {
	if err := p.discard(entry); err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("undo: %w", err)
		p.leaveUnresolved(entry, err)
		return errors.Join(cause, err)
	}
	return cause
}

// unsynced are directories whose last fsync failed.
type unsynced struct {
	mu          sync.Mutex
	directories []string
}

func (u *unsynced) add(directories ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.directories = append(u.directories, directories...)
	slices.Sort(u.directories)
	u.directories = slices.Compact(u.directories)
}

func (u *unsynced) take() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := u.directories
	u.directories = nil
	return taken
}

// syncRenames repeats the fsync of directories for which it failed.
func (p *Pool) syncRenames() error {
	var failed []error
	for _, directory := range p.renames.take() {
		if err := durable.SyncDir(p.root, directory); err != nil {
			p.renames.add(directory)
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// absent answers the deletion of an entry that is not there: it is done once the
// rename that removed it is durable.
func (p *Pool) absent(err error) error {
	if !errors.Is(err, backend.ErrNotFound) {
		return err
	}
	if syncErr := p.syncRenames(); syncErr != nil {
		return fmt.Errorf("%w: the deletion is not durable yet: %w; repeat it", backend.ErrUnavailable, syncErr)
	}
	return err
}

// emptyTrash removes the files in the trash. An entry under lock is being removed by
// another call. An entry whose rename is not durable stays complete until it is:
// a power loss may bring it back.
func (p *Pool) emptyTrash() error {
	if err := p.syncRenames(); err != nil {
		return err
	}
	names, err := p.list(trashDir)
	if err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		if p.owns(name) {
			failed = append(failed, p.emptyOne(path.Join(trashDir, name)))
		}
	}
	return errors.Join(failed...)
}

func (p *Pool) emptyOne(entry string) error {
	info, err := p.root.Lstat(entry)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return absentIsFine(p.root.Remove(entry))
	}
	lock, err := p.tryLock(entry, unix.LOCK_EX)
	if errors.Is(err, backend.ErrBusy) || errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.release()
	return p.root.RemoveAll(entry)
}
