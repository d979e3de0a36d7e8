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

// recover reads every record, finishes or undoes what a crash left, and takes
// stock of the room. A record that cannot be used is reported and its entry
// left alone; it keeps nothing else from working.
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
		p.log.Warn("some deleted files could not be removed; the next start tries again", "error", err)
	}
	_, err := p.observe(ctx)
	return err
}

// eachEntry visits the entries of one kind that are this half's.
func (p *Pool) eachEntry(ctx context.Context, dir, prefix string, visit func(ctx context.Context, id string) error) error {
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
		if err := p.leaveAlone(ctx, path.Join(dir, id), visit(ctx, id)); err != nil {
			return err
		}
	}
	return nil
}

// leaveAlone makes a failed recovery of one entry a matter of that entry: only
// the end of the context ends the start.
func (p *Pool) leaveAlone(ctx context.Context, entry string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, backend.ErrBusy):
		p.log.Warn("an unfinished entry is in use; the next start looks at it again", "path", entry, "error", err)
		return nil
	}
	p.reportBroken(entry, err)
	p.forgetIfGone(entry) // the step that failed may have been the last
	return nil
}

func (p *Pool) recoverVolume(ctx context.Context, id string) error {
	entry := volumePath(id)
	record, err := readRecord[volumeRecord](p.root, entry, volumeFile)
	if err != nil || record.State != ready {
		if err == nil {
			err = p.thawSource(ctx, record.Source.VolumeID)
		}
		return p.recoverUnfinished(ctx, entry, record.Copy, err)
	}
	p.dropTemps(entry)
	if err := p.recoverSize(entry, &record); err != nil {
		return err
	}
	p.index.putVolume(record)
	p.ledger.set(id, account{size: record.Size, thick: record.thick(), mayShare: p.reflink})
	return nil
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
	if stat.Size > record.Size {
		record.Size = stat.Size
		if err := p.writeRecord(entry, volumeFile, *record); err != nil {
			p.log.Warn("the size of a volume could not be recorded; its file tells it", "volume", record.ID, "error", err)
		}
		return nil
	}
	if surplus := stat.Blocks*512 - stat.Size; surplus > 2*allocationUnit {
		return data.Truncate(stat.Size) // frees what was allocated behind the end for an expansion
	}
	return nil
}

func (p *Pool) recoverSnapshot(ctx context.Context, id string) error {
	entry := snapshotPath(id)
	record, err := readRecord[snapshotRecord](p.root, entry, snapshotFile)
	if err != nil || record.State != ready {
		if err == nil {
			err = p.thawSource(ctx, record.SourceID)
		}
		return p.recoverUnfinished(ctx, entry, record.Copy, err)
	}
	p.dropTemps(entry)
	if record.GroupID != "" {
		if _, complete, _ := p.index.group(record.GroupID); !complete {
			return p.dropOrphan(ctx, entry, record)
		}
	}
	p.index.putSnapshots(record)
	return nil
}

// recoverUnfinished deals with an entry that is not complete: a copy that can
// be gone on with stays for a while, an unusable record is left alone, all else
// is removed.
func (p *Pool) recoverUnfinished(ctx context.Context, entry string, begun *copyState, err error) error {
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
	p.log.Info("removing what an interrupted creation left", "id", path.Base(entry))
	return p.dropEntry(ctx, entry)
}

// dropStale removes beginnings of copies whose calls were not repeated for a
// long time, in a process that is never started again.
func (p *Pool) dropStale() error {
	for dir, known := range map[string]func(string) bool{
		volumesDir:   func(id string) bool { _, found, err := p.index.volume(id); return found || err != nil },
		snapshotsDir: func(id string) bool { _, found, err := p.index.snapshot(id); return found || err != nil },
	} {
		names, err := p.list(dir)
		if err != nil {
			return err
		}
		for _, id := range names {
			if entry := path.Join(dir, id); !known(id) && idForm.MatchString(id) && p.owns(id) && !p.recent(entry) {
				p.dropUnlessBusy(entry)
			}
		}
	}
	return nil
}

func (p *Pool) dropUnlessBusy(entry string) {
	held, err := p.take(entry, unix.LOCK_EX)
	if err != nil {
		return
	}
	defer held.release()
	if complete(p.root, entry) {
		return // finished in this instant
	}
	p.log.Info("removing what an interrupted creation left", "id", path.Base(entry))
	if err := p.discard(entry); err != nil {
		p.log.Warn("it could not be removed", "id", path.Base(entry), "error", err)
	}
}

// complete errs on the side of an entry being there.
func complete(root *os.Root, entry string) bool {
	file := volumeFile
	if path.Dir(entry) == snapshotsDir {
		file = snapshotFile
	}
	data, err := root.ReadFile(path.Join(entry, file))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	record, err := decode[header](data, path.Base(entry))
	return err != nil || record.State != creating
}

func (p *Pool) dropEntry(ctx context.Context, entry string) error {
	held, err := p.wait(ctx, entry, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer held.release()
	return p.discard(entry)
}

// dropWithoutRecord removes a directory that was made just before a crash. One
// with data in it had a record once: it is left alone.
func (p *Pool) dropWithoutRecord(entry string) error {
	p.dropTemps(entry)
	names, err := p.list(entry)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		p.reportBroken(entry, fmt.Errorf("%w: the record of %s is missing, yet there is %q", backend.ErrDataLoss, path.Base(entry), names[0]))
		return nil
	}
	return p.root.Remove(entry)
}

func (p *Pool) reportBroken(entry string, err error) {
	p.log.Error("an entry of the pool cannot be used and is left alone", "path", entry, "error", err)
	p.index.breakEntry(path.Base(entry), err)
}

// dropOrphan removes a member of a group that does not exist, but for a group
// whose record is unusable.
func (p *Pool) dropOrphan(ctx context.Context, entry string, record snapshotRecord) error {
	if _, _, err := p.index.group(record.GroupID); err != nil {
		p.reportBroken(entry, err)
		return nil
	}
	return p.dropEntry(ctx, entry)
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

// thawSource thaws what a crash in the middle of a cut left frozen.
func (p *Pool) thawSource(ctx context.Context, id string) error {
	if !isID(volumePrefix, id) {
		return nil
	}
	data, err := p.openData(volumePath(id), os.O_RDONLY)
	if errors.Is(err, backend.ErrDataLoss) {
		return nil // deleted, hence not mounted
	}
	if err != nil {
		return err
	}
	defer func() { _ = data.Close() }()
	return thawUsers(ctx, data)
}

// load is recover on a read-only filesystem: it changes nothing.
func (p *Pool) load() error {
	for _, id := range p.namesIn(groupsDir) {
		if record, err := readRecord[groupRecord](p.root, groupPath(id), groupFile); err == nil && record.State == ready {
			p.index.putGroup(record)
		}
	}
	for _, id := range p.namesIn(snapshotsDir) {
		if record, err := readRecord[snapshotRecord](p.root, snapshotPath(id), snapshotFile); err == nil && record.State == ready {
			p.index.putSnapshots(record)
		}
	}
	for _, id := range p.namesIn(volumesDir) {
		if record, err := readRecord[volumeRecord](p.root, volumePath(id), volumeFile); err == nil && record.State == ready {
			p.index.putVolume(record)
		}
	}
	return nil
}

func (p *Pool) namesIn(dir string) []string {
	names, err := p.list(dir)
	if err != nil {
		p.log.Error("a directory of the pool cannot be read", "path", dir, "error", err)
	}
	return names
}
