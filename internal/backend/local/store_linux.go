package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/durable"
)

// Directories and files below the pool.
const (
	volumesDir   = "volumes"
	snapshotsDir = "snapshots"
	groupsDir    = "groups"
	trashDir     = "trash"

	volumeFile   = "volume.json"
	snapshotFile = "snapshot.json"
	groupFile    = "group.json"
	formatFile   = "format.json"
	freezeFile   = "freeze"
	dataFile     = "data"

	directoryMode = 0o700
	fileMode      = 0o600
)

func volumePath(id string) string   { return path.Join(volumesDir, id) }
func snapshotPath(id string) string { return path.Join(snapshotsDir, id) }
func groupPath(id string) string    { return path.Join(groupsDir, id) }

// entryLock is an entry's directory under flock(2). It excludes the other half and
// every other operation on the entry; the kernel releases it after a crash.
type entryLock struct {
	dir  *os.File
	path string
}

// release unlocks explicitly: a program that is just being started has a copy
// of the descriptor between fork and exec, which would keep the lock.
func (l *entryLock) release() {
	if l == nil {
		return
	}
	unlock(l.dir)
}

// tryLock locks the directory of an entry; ErrNotFound, or ErrBusy at once.
func (p *Pool) tryLock(entry string, how int) (*entryLock, error) {
	dir, err := p.root.OpenFile(entry, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", backend.ErrNotFound, path.Base(entry))
	}
	if err != nil {
		return nil, err
	}
	if err := p.tryLockOpen(dir, entry, how); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return &entryLock{dir: dir, path: entry}, nil
}

func (p *Pool) tryLockOpen(dir *os.File, entry string, how int) error {
	if err := tryFlock(dir, how); err != nil {
		if errors.Is(err, backend.ErrBusy) {
			return fmt.Errorf("%w: another operation is working on %s; repeat later", backend.ErrBusy, path.Base(entry))
		}
		return err
	}
	// It may have been moved to the trash between open and flock.
	locked, err := dir.Stat()
	if err != nil {
		return err
	}
	now, err := p.root.Stat(entry)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && !os.SameFile(locked, now)) {
		return fmt.Errorf("%w: %s", backend.ErrNotFound, path.Base(entry))
	}
	return err
}

// awaitLock is tryLock that retries for a second, so that a short operation, such
// as a snapshot of the volume, does not surface as ABORTED; ErrBusy after that.
func (p *Pool) awaitLock(ctx context.Context, entry string, how int) (*entryLock, error) {
	const tries, pause = 100, 10 * time.Millisecond
	for try := 0; ; try++ {
		lock, err := p.tryLock(entry, how)
		if !errors.Is(err, backend.ErrBusy) || try == tries {
			return lock, err
		}
		if err := concurrency.Sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// lockNew creates the directory of an entry if it does not exist, and locks it. It
// retries both if the removal of an abandoned entry deleted the directory in between,
// and waits as awaitLock does: another creation without room locks every new directory
// while it searches for abandoned entries.
func (p *Pool) lockNew(ctx context.Context, entry string) (*entryLock, error) {
	const tries = 10
	for try := 0; ; try++ {
		if err := durable.Mkdir(p.root, entry, directoryMode); err != nil {
			return nil, err
		}
		lock, err := p.awaitLock(ctx, entry, unix.LOCK_EX)
		if !errors.Is(err, backend.ErrNotFound) || try == tries {
			return lock, err
		}
	}
}

// readRecord reads the record of an entry; fs.ErrNotExist if there is none.
func readRecord[T stored](root *os.Root, entry, file string) (T, error) {
	data, err := readSmall(root, path.Join(entry, file))
	if err != nil {
		var none T
		return none, err
	}
	return decode[T](data, path.Base(entry))
}

// maximumRecord is the largest record that is read, in bytes. The largest valid one
// is that of a group with some thousand members.
const maximumRecord = mebibyte

// readSmall reads a regular file of at most maximumRecord bytes.
func readSmall(root *os.Root, name string) ([]byte, error) {
	file, err := openRegular(root, name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maximumRecord+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if len(data) > maximumRecord {
		return nil, fmt.Errorf("%w: %s is larger than %d bytes", backend.ErrDataLoss, name, maximumRecord)
	}
	return data, nil
}

// openRegular opens a regular file; ErrDataLoss if the file is of another type. It
// does not block on a named pipe (open(2), O_NONBLOCK).
func openRegular(root *os.Root, name string, flags int) (*os.File, error) {
	file, err := root.OpenFile(name, flags|unix.O_NONBLOCK, fileMode)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%w: %s is not a regular file: %w", backend.ErrDataLoss, name, err)
	}
	if err != nil {
		return nil, err
	}
	stat, err := statOf(file)
	if err == nil && stat.Mode&unix.S_IFMT != unix.S_IFREG {
		err = fmt.Errorf("%w: %s is not a regular file", backend.ErrDataLoss, name)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (p *Pool) writeRecord(entry, file string, record any) error {
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the record of %s: %w", path.Base(entry), err)
	}
	return durable.WriteFile(p.root, path.Join(entry, file), append(data, '\n'), fileMode)
}

func (p *Pool) openData(entry string, flags int) (*os.File, error) {
	file, err := openRegular(p.root, path.Join(entry, dataFile), flags)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the data file of %s is missing", backend.ErrDataLoss, path.Base(entry))
	}
	return file, err
}

// owns reports whether this half of the driver may write an entry: the node half
// writes inline volumes, the controller half all other entries.
func (p *Pool) owns(id string) bool {
	if strings.HasPrefix(id, ephemeralPrefix) {
		return p.options.Role != RoleController
	}
	return p.options.Role != RoleNode
}

// list returns the names in a directory of the pool.
func (p *Pool) list(dir string) ([]string, error) {
	opened, err := p.root.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := opened.Readdirnames(-1)
	return names, errors.Join(err, opened.Close())
}
