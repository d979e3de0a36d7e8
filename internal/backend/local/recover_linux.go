package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/durable"
)

// How long the beginning of an interrupted long copy is kept for the call to
// be repeated.
const keepPartial = 24 * time.Hour

// recover reads every record, completes or undoes interrupted operations, and measures
// the room. An entry whose record cannot be used is reported and not changed; all others
// work.
func (p *Pool) recover(ctx context.Context) error {
	if err := p.recoverGroups(ctx); err != nil {
		return err
	}
	if err := p.eachEntry(ctx, snapshotsDir, snapshotPrefix, p.recoverSnapshot); err != nil {
		return err
	}
	if err := p.eachEntry(ctx, volumesDir, volumePrefix, p.recoverVolume); err != nil {
		return err
	}
	if err := p.eachEntry(ctx, volumesDir, ephemeralPrefix, p.recoverVolume); err != nil {
		return err
	}
	if err := p.emptyTrash(); err != nil {
		p.log.Warn("some deleted files could not be removed; the driver retries", "error", err)
		p.wake()
	}
	_, err := p.observe(ctx)
	return err
}

// remover discards an entry, with or without taking its lock.
type remover func(ctx context.Context, entry string) error

// eachEntry visits the entries of one kind that are this half's.
func (p *Pool) eachEntry(
	ctx context.Context, dir, prefix string, visit func(ctx context.Context, id string, remove remover) error,
) error {
	names, err := p.list(dir)
	if err != nil {
		return err
	}
	for _, id := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !isID(prefix, id) || !p.owns(id) {
			continue
		}
		if err := p.leaveAlone(ctx, path.Join(dir, id), visit(ctx, id, p.dropEntry)); err != nil {
			return err
		}
	}
	return nil
}

// leaveAlone limits a failed recovery to its entry: only
// the end of the context ends the start.
func (p *Pool) leaveAlone(ctx context.Context, entry string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, backend.ErrDataLoss), errors.Is(err, backend.ErrPrecondition):
		p.reportBroken(entry, err)
		return nil
	}
	p.log.Warn("an entry could not be recovered; the driver retries", "path", entry, "error", err)
	p.leaveUnresolved(entry, err)
	return nil
}

func (p *Pool) recoverVolume(ctx context.Context, id string, remove remover) error {
	entry := volumePath(id)
	record, err := readRecord[volumeRecord](p.root, entry, volumeFile)
	if err != nil || record.State != ready {
		if err == nil {
			err = p.thawSource(ctx, record.Source.VolumeID)
		}
		return p.recoverUnfinished(ctx, entry, record.Copy, err, remove)
	}
	p.dropTemps(entry)
	if err := p.recoverSize(entry, &record); err != nil {
		return err
	}
	p.enterVolume(record, p.unmeasured(record))
	return nil
}

// unmeasured is the account of a volume of which only the record is known: it may need
// all of its blocks.
func (p *Pool) unmeasured(record volumeRecord) account {
	return account{size: record.Size, thick: record.thick(), mayShare: p.reflink.Load()}
}

// recoverSize finishes an expansion that was interrupted between the file and
// the record. The file may be in use at its new size already, so that only
// going forward is safe.
func (p *Pool) recoverSize(entry string, record *volumeRecord) error {
	data, err := p.openData(entry, os.O_RDWR)
	if errors.Is(err, backend.ErrDataLoss) {
		p.log.Error("a data file is missing", "volume", record.ID)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = data.Close() }()
	stat, err := statOf(data)
	if err != nil {
		return err
	}
	if stat.Size < record.Size {
		p.log.Error("a data file is truncated", "volume", record.ID, "bytes", stat.Size, "of", record.Size)
		return nil
	}
	if stat.Size > maximumSize {
		return fmt.Errorf("%w: the data file of %s has %d bytes; volumes have at most %d",
			backend.ErrDataLoss, record.ID, stat.Size, int64(maximumSize))
	}
	if stat.Size > record.Size {
		record.Size = stat.Size
		if err := p.writeRecord(entry, volumeFile, *record); err != nil {
			p.log.Warn("the size of a volume could not be recorded; its file has it", "volume", record.ID, "error", err)
		}
		return nil
	}
	if surplus := stat.Blocks*512 - stat.Size; surplus > 2*allocationUnit {
		return data.Truncate(stat.Size) // frees blocks behind the end, allocated for an expansion
	}
	return nil
}

func (p *Pool) recoverSnapshot(ctx context.Context, id string, remove remover) error {
	entry := snapshotPath(id)
	record, err := readRecord[snapshotRecord](p.root, entry, snapshotFile)
	if err != nil || record.State != ready {
		if err == nil {
			err = p.thawSource(ctx, record.SourceID)
		}
		return p.recoverUnfinished(ctx, entry, record.Copy, err, remove)
	}
	p.dropTemps(entry)
	if record.GroupID != "" {
		if _, complete, _ := p.index.group(record.GroupID); !complete {
			return p.dropOrphan(ctx, entry, record, remove)
		}
	}
	p.index.putSnapshots(record)
	return nil
}

// recoverUnfinished deals with an entry that is not complete: a copy that can continue
// stays for a while, one with an unusable record is not touched, others are removed.
func (p *Pool) recoverUnfinished(
	ctx context.Context, entry string, begun *copyState, err error, remove remover,
) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p.dropWithoutRecord(entry)
	case errors.Is(err, backend.ErrDataLoss), errors.Is(err, backend.ErrPrecondition):
		p.reportBroken(entry, err)
		return nil
	case err != nil:
		return err
	}
	if begun != nil && p.recent(entry) {
		p.log.Info("an interrupted copy waits for its call to be repeated", "id", path.Base(entry), "bytes", begun.Offset)
		p.dropTemps(entry)
		return nil
	}
	p.log.Info("removing the entry of an interrupted creation", "id", path.Base(entry))
	return remove(ctx, entry)
}

// dropAbandoned removes beginnings of copies that no call works on, as far as drop
// selects them. A call that is repeated later begins its copy again.
func (p *Pool) dropAbandoned(drop func(entry string) bool) error {
	for dir, known := range map[string]func(string) bool{
		volumesDir:   func(id string) bool { _, found, err := p.index.volume(id); return found || err != nil },
		snapshotsDir: func(id string) bool { _, found, err := p.index.snapshot(id); return found || err != nil },
	} {
		names, err := p.list(dir)
		if err != nil {
			return err
		}
		for _, id := range names {
			if entry := path.Join(dir, id); !known(id) && idForm.MatchString(id) && p.owns(id) && drop(entry) {
				p.dropUnlessBusy(entry)
			}
		}
	}
	return nil
}

func (p *Pool) stale(entry string) bool { return !p.recent(entry) }

func (p *Pool) dropUnlessBusy(entry string) {
	lock, err := p.tryLock(entry, unix.LOCK_EX)
	if err != nil {
		return
	}
	defer lock.release()
	if p.unresolved.has(entry) || complete(p.root, entry) {
		return // finished in this instant
	}
	p.log.Info("removing the entry of an interrupted creation", "id", path.Base(entry))
	if err := p.discard(entry); err != nil {
		p.log.Warn("it could not be removed", "id", path.Base(entry), "error", err)
	}
}

// complete errs on the side of an entry being there. Data without a record had
// one once, as the intent precedes the data: it is not an interrupted creation.
func complete(root *os.Root, entry string) bool {
	file := volumeFile
	if path.Dir(entry) == snapshotsDir {
		file = snapshotFile
	}
	data, err := readSmall(root, path.Join(entry, file))
	if errors.Is(err, fs.ErrNotExist) {
		_, err := root.Lstat(path.Join(entry, dataFile))
		return !errors.Is(err, fs.ErrNotExist)
	}
	record, err := decode[header](data, path.Base(entry))
	return err != nil || record.State != creating
}

func (p *Pool) dropEntry(ctx context.Context, entry string) error {
	lock, err := p.awaitLock(ctx, entry, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer lock.release()
	return p.discard(entry)
}

// dropWithoutRecord removes a directory that was made just before a crash. One
// with data in it had a record once: it is reported and not changed.
func (p *Pool) dropWithoutRecord(entry string) error {
	p.dropTemps(entry)
	names, err := p.list(entry)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		p.reportBroken(entry, fmt.Errorf("%w: the record of %s is missing, yet there is %q",
			backend.ErrDataLoss, path.Base(entry), names[0]))
		return nil
	}
	return p.root.Remove(entry)
}

func (p *Pool) reportBroken(entry string, err error) {
	p.log.Error("an entry of the pool cannot be used and is not changed", "path", entry, "error", err)
	p.index.breakEntry(path.Base(entry), err)
}

// dropOrphan removes a member of a group that does not exist, but for a group
// whose record is unusable.
func (p *Pool) dropOrphan(ctx context.Context, entry string, record snapshotRecord, remove remover) error {
	if p.unresolved.has(groupPath(record.GroupID)) {
		return fmt.Errorf("%w: its group snapshot %s is not resolved", backend.ErrUnavailable, record.GroupID)
	}
	if _, _, err := p.index.group(record.GroupID); err != nil {
		p.reportBroken(entry, err)
		return nil
	}
	return remove(ctx, entry)
}

func (p *Pool) recent(entry string) bool {
	info, err := p.root.Stat(entry)
	return err == nil && time.Since(info.ModTime()) < keepPartial
}

// dropTemps removes what interrupted writes of records left.
func (p *Pool) dropTemps(entry string) {
	names, err := p.list(entry)
	if err != nil {
		return
	}
	for _, name := range names {
		if durable.IsTemp(name) {
			_ = p.root.Remove(path.Join(entry, name))
		}
	}
}

// load is recover on a read-only filesystem: it changes nothing. Groups come
// before the snapshots in them.
func (p *Pool) load() {
	loadEach(p, groupsDir, groupPrefix, groupFile, p.index.putGroup)
	loadEach(p, snapshotsDir, snapshotPrefix, snapshotFile, func(record snapshotRecord) {
		if _, complete, _ := p.index.group(record.GroupID); record.GroupID == "" || complete {
			p.index.putSnapshots(record)
		}
	})
	enter := func(record volumeRecord) { p.enterVolume(record, p.unmeasured(record)) }
	loadEach(p, volumesDir, volumePrefix, volumeFile, enter)
	loadEach(p, volumesDir, ephemeralPrefix, volumeFile, enter)
}

func loadEach[T stored](p *Pool, dir, prefix, file string, enter func(T)) {
	for _, id := range p.namesIn(dir) {
		if !isID(prefix, id) {
			continue
		}
		record, err := readRecord[T](p.root, path.Join(dir, id), file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			p.reportBroken(path.Join(dir, id), err)
		case record.head().State == ready:
			enter(record)
		}
	}
}

func (p *Pool) namesIn(dir string) []string {
	names, err := p.list(dir)
	if err != nil {
		p.log.Error("a directory of the pool cannot be read", "path", dir, "error", err)
	}
	return names
}
