package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// lockedSource is the source of a new data file's content, under lock.
type lockedSource struct {
	lock       *entryLock
	data       *os.File
	id         string
	live       bool // a volume, which may be in use; a snapshot never changes
	size       int64
	sectorSize int
	thick      bool
	formatted  string // filesystem that it is known to have
}

// openSource locks and opens a source; nil for none.
func (p *Pool) openSource(ctx context.Context, from source) (*lockedSource, error) {
	switch {
	case from.SnapshotID != "":
		return p.openSnapshot(ctx, from.SnapshotID)
	case from.VolumeID != "":
		return p.openLive(ctx, from.VolumeID)
	}
	return nil, nil
}

func (p *Pool) openSnapshot(ctx context.Context, id string) (*lockedSource, error) {
	record, err := p.findSnapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	lock, err := p.awaitLock(ctx, snapshotPath(id), unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	return p.openLocked(lock, os.O_RDONLY, lockedSource{
		id: id, size: record.Size, sectorSize: record.SectorSize, formatted: record.Formatted,
	})
}

// openLive locks a volume to copy it. Two snapshots at once would thaw under each
// other, so the lock is exclusive, but for the plain copy of an idle volume,
// which others may read at the same time.
func (p *Pool) openLive(ctx context.Context, id string) (*lockedSource, error) {
	if _, err := p.Volume(ctx, id); err != nil {
		return nil, err
	}
	how := unix.LOCK_SH
	if p.reflink.Load() {
		how = unix.LOCK_EX
	}
	lock, err := p.awaitLock(ctx, volumePath(id), how)
	if err != nil {
		return nil, err
	}
	opened, err := p.openLockedVolume(lock, id)
	if err != nil || how == unix.LOCK_EX {
		return opened, err
	}
	loops, err := p.loopsInUse(ctx, opened.data)
	if err == nil && len(loops) == 0 {
		return opened, nil
	}
	opened.close()
	if err != nil {
		return nil, err
	}
	if lock, err = p.awaitLock(ctx, volumePath(id), unix.LOCK_EX); err != nil {
		return nil, err
	}
	return p.openLockedVolume(lock, id)
}

func (p *Pool) openLockedVolume(lock *entryLock, id string) (*lockedSource, error) {
	record, err := readRecord[volumeRecord](p.root, lock.path, volumeFile)
	if err != nil {
		lock.release()
		return nil, err
	}
	mark, err := p.readMark(id)
	if err == nil && mark.Resizing {
		err = fmt.Errorf("volume %s: %w: resize2fs works on it, or was interrupted; the next NodeStageVolume completes it",
			id, backend.ErrBusy)
	}
	if err != nil {
		lock.release()
		return nil, err
	}
	from := lockedSource{id: id, live: true, size: record.Size, sectorSize: record.SectorSize, thick: record.thick()}
	if mark.Done {
		from.formatted = mark.FSType
	}
	return p.openLocked(lock, os.O_RDWR, from) // for writing: fsync must reach dirty pages
}

func (p *Pool) openLocked(lock *entryLock, flags int, from lockedSource) (*lockedSource, error) {
	data, err := p.openData(lock.path, flags)
	if err != nil {
		lock.release()
		return nil, err
	}
	from.lock, from.data = lock, data
	return &from, nil
}

// close may be called on every path, also twice and on nil.
func (o *lockedSource) close() {
	if o == nil || o.lock == nil {
		return
	}
	_ = o.data.Close()
	o.lock.release()
	o.lock = nil
}

// sectorSizeFor decides the sector size of a new volume: content made for one
// sector size cannot be read with a larger one (mkfs.xfs(8), sectsize).
func (o *lockedSource) sectorSizeFor(desired volumeRecord) (int, error) {
	switch {
	case o == nil && desired.SectorSize == 0:
		return defaultSectorSize, nil
	case o == nil || desired.SectorSize == o.sectorSize:
		return desired.SectorSize, nil
	case desired.SectorSize != 0:
		return 0, fmt.Errorf("%w: parameter %s is %d, but %s has sectors of %d bytes; leave the parameter out",
			backend.ErrInvalid, parameterSectorSize, desired.SectorSize, o.id, o.sectorSize)
	}
	return o.sectorSize, nil
}

func (o *lockedSource) checkFits(size int64) error {
	if o != nil && size < o.size {
		return fmt.Errorf("%w: %d bytes are too few for %s, which has %d", backend.ErrOutOfRange, size, o.id, o.size)
	}
	return nil
}

// refuseInUse is ErrInUse when a loop device has the data file of an entry,
// whichever process attached it. A missing file is not in use.
func (p *Pool) refuseInUse(ctx context.Context, entry, id string) error {
	data, err := p.openData(entry, os.O_RDONLY)
	if errors.Is(err, backend.ErrDataLoss) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = data.Close() }()
	loops, err := p.loopsInUse(ctx, data)
	if err != nil {
		return err
	}
	if len(loops) > 0 {
		return fmt.Errorf("%w: volume %s is attached as %s; unpublish and unstage it first",
			backend.ErrInUse, id, loops[0].Path)
	}
	return nil
}

// loopsInUse lists the loop devices of a file, those left out that are just
// going away: a device with autoclear outlives its last user for an instant,
// for longer when a program is being started, which has a copy of every
// descriptor between fork and exec.
func (p *Pool) loopsInUse(ctx context.Context, data *os.File) ([]blockdev.Loop, error) {
	const tries, pause = 20, 5 * time.Millisecond
	for try := 0; ; try++ {
		loops, err := p.loops.Of(data)
		if err != nil || try == tries {
			return loops, err
		}
		leaving, err := anyLeaving(loops)
		if err != nil || !leaving {
			return loops, err
		}
		if err := concurrency.Sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// anyLeaving reports whether a device could be about to vanish: it does so with
// its last user, and no mount is one.
func anyLeaving(loops []blockdev.Loop) (bool, error) {
	if !slices.ContainsFunc(loops, func(l blockdev.Loop) bool { return l.AutoClear }) {
		return false, nil
	}
	table, err := mount.Table()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(loops, func(l blockdev.Loop) bool {
		return l.AutoClear && len(mount.OfDevice(table, l.Number)) == 0
	}), nil
}
