package local

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
)

// Expand grows the data file, then writes the size to the record. After a crash in
// between, the file is larger than the record says, never smaller; the next start or
// the repeated call writes the larger size to the record.
func (p *Pool) Expand(ctx context.Context, volume backend.Volume, size int64) (backend.Volume, error) {
	record, err := p.change(ctx, volume.ID, func(record *volumeRecord, data *os.File) error {
		return p.expand(ctx, record, data, size)
	})
	if err != nil {
		return backend.Volume{}, classify(err)
	}
	return record.volume(p.topology), nil
}

// change works on a complete volume under its lock, with its data file open,
// and enters the changed record into the index and the ledger.
func (p *Pool) change(ctx context.Context, id string, work func(*volumeRecord, *os.File) error) (volumeRecord, error) {
	if _, err := p.Volume(ctx, id); err != nil {
		return volumeRecord{}, err
	}
	if err := p.ready(ctx); err != nil {
		return volumeRecord{}, err
	}
	lock, err := p.awaitLock(ctx, volumePath(id), unix.LOCK_EX)
	if err != nil {
		return volumeRecord{}, err
	}
	defer lock.release()
	record, err := p.recordOnDisk(id)
	if err != nil {
		return volumeRecord{}, err
	}
	data, err := p.openDataOf(record, false)
	if err != nil {
		return volumeRecord{}, err
	}
	defer func() { _ = data.Close() }()
	defer p.releaseUnlessUnresolved(volumePath(id))
	if err := work(&record, data); err != nil {
		p.leaveUnresolved(volumePath(id), err) // the file or the record may have changed
		return volumeRecord{}, err
	}
	p.enterVolume(record, p.adjusted(record))
	return record, nil
}

// adjusted returns the account of a volume whose record changed. A volume that cannot
// be measured now counts as if it needed all of its blocks.
func (p *Pool) adjusted(record volumeRecord) account {
	a := p.ledger.get(record.ID)
	a.size, a.thick = record.Size, record.thick()
	measured, err := p.measure(record.ID, a)
	if err != nil {
		return p.unmeasured(record)
	}
	return measured
}

func (p *Pool) expand(ctx context.Context, record *volumeRecord, data *os.File, size int64) error {
	stat, err := statOf(data)
	if err != nil {
		return err
	}
	size = max(size, stat.Size) // an interrupted call went further already
	if size == record.Size {
		return nil
	}
	more := account{size: size - record.Size, thick: record.thick()}
	if err := p.admit(ctx, record.ID, p.ledger.need(more)); err != nil {
		return err
	}
	if err := p.growFile(ctx, record, data, stat.Size, size); err != nil {
		return err
	}
	record.Size = size
	if err := p.writeRecord(volumePath(record.ID), volumeFile, *record); err != nil {
		return err
	}
	return p.points.Hit("local/expand/recorded")
}

// growFile changes the size in one step, after the blocks of a thick volume
// are there: a file of some size in between must never be seen.
func (p *Pool) growFile(ctx context.Context, record *volumeRecord, data *os.File, from, to int64) error {
	if record.thick() {
		if err := p.reserve(ctx, data, to); err != nil {
			return errors.Join(err, data.Truncate(from)) // frees the blocks after the end
		}
		if err := p.points.Hit("local/expand/allocated"); err != nil {
			return errors.Join(err, data.Truncate(from))
		}
	}
	if err := data.Truncate(to); err != nil {
		return err
	}
	if err := p.points.Hit("local/expand/grown"); err != nil {
		return err
	}
	if err := data.Sync(); err != nil {
		return err
	}
	return p.points.Hit("local/expand/synced")
}

// Modify changes the provisioning of a volume, also while it is in use.
func (p *Pool) Modify(ctx context.Context, volume backend.Volume, mutable, _ map[string]string) error {
	if err := checkParameters(nil, mutable); err != nil {
		return err
	}
	desired, given := mutable[parameterProvisioning]
	if !given {
		return nil
	}
	_, err := p.change(ctx, volume.ID, func(record *volumeRecord, data *os.File) error {
		return p.provision(ctx, record, data, desired)
	})
	return classify(err)
}

// provision changes a volume between thin and thick. To make it thick it allocates the
// blocks and then writes the record; to make it thin it writes the record first. So a
// record never promises blocks that are missing. After a crash a retry completes the
// change.
func (p *Pool) provision(ctx context.Context, record *volumeRecord, data *os.File, desired string) error {
	if desired == thick {
		if err := p.thicken(ctx, record, data); err != nil {
			return err
		}
	}
	if record.Provisioning == desired {
		return nil
	}
	record.Provisioning = desired
	if err := p.writeRecord(volumePath(record.ID), volumeFile, *record); err != nil {
		return err
	}
	return p.points.Hit("local/modify/recorded")
}

func (p *Pool) thicken(ctx context.Context, record *volumeRecord, data *os.File) error {
	loops, err := p.loops.Of(data)
	if err != nil {
		return err
	}
	now, err := p.measure(record.ID, account{size: record.Size, mayShare: p.reflink.Load()})
	if err != nil {
		return err
	}
	now.thick = true
	if err := p.admit(ctx, record.ID, p.ledger.need(now)); err != nil {
		return err
	}
	// A discard must not free blocks that the allocation has passed.
	if err := stopDiscard(loops); err != nil {
		return err
	}
	if err := p.allocateInUse(ctx, record, data, loops); err != nil {
		return errors.Join(err, freeAllocated(data, record.Size, loops))
	}
	return p.points.Hit("local/modify/allocated")
}

func (p *Pool) allocateInUse(ctx context.Context, record *volumeRecord, data *os.File, loops []blockdev.Loop) error {
	if err := p.reserve(ctx, data, record.Size); err != nil {
		return err
	}
	if p.copyOnWrite && len(loops) > 0 {
		shared, err := sharedExtents(data)
		if err != nil {
			return err
		}
		// Writing the same bytes again would overwrite the workload's writes.
		if len(shared) > 0 {
			return fmt.Errorf("%w: volume %s shares blocks with a snapshot or clone, which btrfs can only end while it is "+
				"idle; unpublish and unstage it first", backend.ErrInUse, record.ID)
		}
	}
	if err := p.unshare(ctx, data, record.Size); err != nil {
		return err
	}
	return data.Sync()
}

// freeAllocated frees the blocks of a failed allocation, when no process can be writing
// there: ranges without data, unwritten blocks included (lseek(2)).
func freeAllocated(data *os.File, size int64, loops []blockdev.Loop) error {
	if len(loops) > 0 {
		return nil
	}
	for at := int64(0); at < size; {
		begin, end, err := nextData(data, at, size)
		if err != nil {
			return err
		}
		if begin > at {
			if err := punch(data, at, begin-at); err != nil {
				return err
			}
		}
		at = max(end, begin)
	}
	return nil
}

// stopDiscard stops the users of a volume's devices from discarding blocks.
// The opposite comes with the next attachment: the kernel does not turn discard
// on again for a device in use (see blockdev.Loop.SetDiscard).
func stopDiscard(loops []blockdev.Loop) error {
	for i := range loops {
		if loops[i].FileReadOnly {
			continue
		}
		if err := loops[i].SetDiscard(false); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
