package local

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
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
	dataFile     = "data"

	directoryMode = 0o700
	fileMode      = 0o600
)

func volumePath(id string) string   { return path.Join(volumesDir, id) }
func snapshotPath(id string) string { return path.Join(snapshotsDir, id) }
func groupPath(id string) string    { return path.Join(groupsDir, id) }

// hold is an entry's directory under flock(2). It keeps out the other half and
// every other operation on the entry; a crash gives it back.
type hold struct {
	dir  *os.File
	path string
}

// release unlocks explicitly: a program that is just being started has a copy
// of the descriptor between fork and exec, which would keep the lock.
func (h *hold) release() {
	unlock(h.dir)
}

// take locks the directory of an entry; ErrNotFound, or ErrBusy at once.
func (p *Pool) take(entry string, how int) (*hold, error) {
	dir, err := p.root.Open(entry)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", backend.ErrNotFound, path.Base(entry))
	}
	if err != nil {
		return nil, err
	}
	if err := p.takeOpen(dir, entry, how); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return &hold{dir: dir, path: entry}, nil
}

func (p *Pool) takeOpen(dir *os.File, entry string, how int) error {
	if err := tryFlock(dir, how); err != nil {
		if errors.Is(err, backend.ErrBusy) {
			return fmt.Errorf("%w: another operation is working on %s; repeat later", backend.ErrBusy, path.Base(entry))
		}
		return err
	}
	// Between opening and locking it may have gone to the trash.
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

// wait is take for those who can meet an operation that is over in an instant,
// such as a cut of the volume: failing at once would make a call fail that
// nobody need repeat. ErrBusy after a second.
func (p *Pool) wait(ctx context.Context, entry string, how int) (*hold, error) {
	const tries, pause = 100, 10 * time.Millisecond
	for try := 0; ; try++ {
		held, err := p.take(entry, how)
		if !errors.Is(err, backend.ErrBusy) || try == tries {
			return held, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// takeNew makes the directory of an entry if need be and locks it.
func (p *Pool) takeNew(entry string) (*hold, error) {
	if err := durable.Mkdir(p.root, entry, directoryMode); err != nil {
		return nil, err
	}
	return p.take(entry, unix.LOCK_EX)
}

// readRecord finds the record of an entry; fs.ErrNotExist when there is none.
func readRecord[T interface{ head() header }](root *os.Root, entry, file string) (T, error) {
	data, err := root.ReadFile(path.Join(entry, file))
	if err != nil {
		var none T
		return none, err
	}
	return decode[T](data, path.Base(entry))
}

func (p *Pool) writeRecord(entry, file string, record any) error {
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the record of %s: %w", path.Base(entry), err)
	}
	return durable.WriteFile(p.root, path.Join(entry, file), append(data, '\n'), fileMode)
}

func (p *Pool) openData(entry string, flags int) (*os.File, error) {
	file, err := p.root.OpenFile(path.Join(entry, dataFile), flags, fileMode)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the data file of %s is missing", backend.ErrDataLoss, path.Base(entry))
	}
	return file, err
}

// discard removes an entry: one rename, after which it is gone for good, then
// the removal of the files. What is left of that is removed at the next start.
func (p *Pool) discard(entry string) error {
	rest := path.Join(trashDir, path.Base(entry)+"."+rand.Text())
	if err := durable.Rename(p.root, entry, rest); err != nil {
		return err
	}
	if err := p.points.Hit("local/discard/renamed"); err != nil {
		return err
	}
	p.discarded.Store(time.Now().UnixNano())
	if err := p.root.RemoveAll(rest); err != nil {
		p.log.Warn("removing deleted files failed; the next start tries again", "path", rest, "error", err)
		return nil
	}
	return p.points.Hit("local/discard/removed")
}

// undo removes what a failed operation made; the failure is what is reported.
func (p *Pool) undo(entry string, cause error) error {
	if err := p.discard(entry); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(cause, fmt.Errorf("undo: %w", err))
	}
	return cause
}

// emptyTrash removes what was deleted before. An entry under lock is just
// being removed by the other half.
func (p *Pool) emptyTrash() error {
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
	held, err := p.take(entry, unix.LOCK_EX)
	if errors.Is(err, backend.ErrBusy) || errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer held.release()
	return p.root.RemoveAll(entry)
}

// owns tells whether an entry is this half's to write: inline volumes belong
// to the node half, everything else to the controller half.
func (p *Pool) owns(id string) bool {
	if strings.HasPrefix(id, ephemeralPrefix) {
		return p.options.Role != RoleController
	}
	return p.options.Role != RoleNode
}

// list gives the names in a directory of the pool.
func (p *Pool) list(dir string) ([]string, error) {
	opened, err := p.root.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := opened.Readdirnames(-1)
	return names, errors.Join(err, opened.Close())
}
