package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// VolumeHealth returns the faults of a volume.
func (p *Pool) VolumeHealth(ctx context.Context, id string) ([]backend.HealthProblem, error) {
	if why, broken := p.index.brokenEntries()[id]; broken {
		return []backend.HealthProblem{{Kind: backend.HealthInaccessible, Reason: "RecordUnusable", Message: why.Error()}}, nil
	}
	if _, err := p.Volume(ctx, id); err != nil {
		return nil, err
	}
	return p.NodeVolumeHealth(ctx, id)
}

// NodeVolumeHealth returns the faults of a volume, inline ones included, as
// seen from this machine.
func (p *Pool) NodeVolumeHealth(_ context.Context, id string) ([]backend.HealthProblem, error) {
	record, err := p.recordOnDisk(id)
	if err != nil {
		return nil, err
	}
	own, err := p.dataHealth(record)
	return append(own, p.poolHealth()...), err
}

func (p *Pool) dataHealth(record volumeRecord) ([]backend.HealthProblem, error) {
	data, err := p.openData(volumePath(record.ID), os.O_RDONLY)
	if errors.Is(err, backend.ErrDataLoss) {
		return []backend.HealthProblem{{Kind: backend.HealthDataLoss, Reason: "DataFileMissing", Message: err.Error()}}, nil
	}
	if err != nil {
		return nil, classify(err)
	}
	defer func() { _ = data.Close() }()
	stat, err := statOf(data)
	if err != nil {
		return nil, classify(err)
	}
	if stat.Size < record.Size {
		return []backend.HealthProblem{{
			Kind: backend.HealthDataLoss, Reason: "DataFileTruncated",
			Message: fmt.Sprintf("the data file has %d bytes of %d", stat.Size, record.Size),
		}}, nil
	}
	return p.loopHealth(record, data)
}

func (p *Pool) loopHealth(record volumeRecord, data *os.File) ([]backend.HealthProblem, error) {
	loops, err := p.loops.Of(data)
	if errors.Is(err, backend.ErrUnavailable) {
		loops, err = p.loopsNamed(record.ID)
	}
	if err != nil {
		return nil, classify(err)
	}
	for _, loop := range loops {
		if !loop.DirectIO {
			return []backend.HealthProblem{{
				Kind: backend.HealthDegraded, Reason: "DirectIOUnavailable",
				Message: fmt.Sprintf("the pool's filesystem refuses direct I/O for %s with sectors of %d bytes; data passes the "+
					"page cache twice", loop.Path, loop.SectorSize),
			}}, nil
		}
	}
	return nil, nil
}

// A pool with less than one part in 20 available is nearly full.
const nearlyFullShare = 20

// StorageHealth returns the faults of the pool as a whole.
func (p *Pool) StorageHealth(context.Context) ([]backend.HealthProblem, error) {
	return slices.Concat(p.poolHealth(), p.recordHealth(), p.leftoverHealth()), nil
}

// leftoverHealth reports what occupies blocks of the pool and is in no listing.
func (p *Pool) leftoverHealth() []backend.HealthProblem {
	if p.usable() != nil {
		return nil
	}
	var problems []backend.HealthProblem
	report := func(reason, format string, arguments ...any) {
		problems = append(problems, backend.HealthProblem{Kind: backend.HealthDegraded, Reason: reason,
			Message: fmt.Sprintf(format, arguments...)})
	}
	if left := p.unresolved.all(); len(left) > 0 {
		first := slices.Sorted(maps.Keys(left))[0]
		report("OperationsUnresolved", "%d operations failed and their result is not known, the first on %s: %v; the driver retries", len(left), first, left[first])
	}
	leftovers := p.leftovers()
	if trash := leftovers.trash; trash.entries > 0 {
		report("DeletedNotRemoved", "%d deleted entries in %s occupy %d bytes and cannot be removed; see the log, and remove what keeps them (lsattr, mounts)", trash.entries, trashDir, trash.bytes)
	}
	if partial := leftovers.partial; partial.entries > 0 {
		report("CopiesUnfinished", "%d unfinished copies occupy %d bytes; each is removed when its volume or snapshot is deleted, when the room is needed, or a day after its call was last repeated", partial.entries, partial.bytes)
	}
	return problems
}

// occupied is a number of entries and the bytes that their data files occupy.
type occupied struct {
	entries int
	bytes   int64
}

// leftovers are the entries of the pool that are in no listing.
type leftovers struct{ trash, partial occupied }

func (p *Pool) leftovers() leftovers {
	unfinished := func(id string) bool {
		_, volume, volumeErr := p.index.volume(id)
		_, snapshot, snapshotErr := p.index.snapshot(id)
		return !volume && !snapshot && volumeErr == nil && snapshotErr == nil
	}
	volumes, snapshots := p.heldBy(volumesDir, unfinished, false), p.heldBy(snapshotsDir, unfinished, false)
	return leftovers{
		trash:   p.heldBy(trashDir, func(string) bool { return true }, true),
		partial: occupied{volumes.entries + snapshots.entries, volumes.bytes + snapshots.bytes},
	}
}

// heldBy counts the entries of a directory that have a data file, or with bare all of them.
// Entries under lock are being worked on and do not count.
func (p *Pool) heldBy(dir string, counts func(id string) bool, bare bool) (found occupied) {
	for _, name := range p.namesIn(dir) {
		entry := path.Join(dir, name)
		if !counts(name) {
			continue
		}
		lock, err := p.tryLock(entry, unix.LOCK_SH)
		if err != nil {
			if bare && !errors.Is(err, backend.ErrBusy) && !errors.Is(err, backend.ErrNotFound) {
				found.entries++ // such as a file, or what cannot be read
			}
			continue
		}
		data, err := p.openData(entry, os.O_RDONLY)
		if err == nil {
			size, _ := allocated(data)
			found.bytes += size
			_ = data.Close()
		}
		if err == nil || bare {
			found.entries++
		}
		lock.release()
	}
	return found
}

// poolHealth returns the faults that affect every volume of the pool.
func (p *Pool) poolHealth() []backend.HealthProblem {
	if err := p.usable(); err != nil {
		return []backend.HealthProblem{{Kind: backend.HealthInaccessible, Reason: "PoolUnreachable", Message: err.Error()}}
	}
	now, err := p.stateOf()
	if err == nil {
		_, err = p.root.Stat(poolFile)
	}
	if err != nil {
		return []backend.HealthProblem{{Kind: backend.HealthInaccessible, Reason: "PoolUnreachable", Message: err.Error()}}
	}
	var problems []backend.HealthProblem
	if now.readOnly {
		problems = append(problems, backend.HealthProblem{
			Kind: backend.HealthInaccessible, Reason: "PoolReadOnly",
			Message: p.readOnlyError().Error(),
		})
	}
	if now.available < now.total/nearlyFullShare {
		problems = append(problems, backend.HealthProblem{
			Kind: backend.HealthDegraded, Reason: "PoolNearlyFull",
			Message: fmt.Sprintf("%d of %d bytes are left in pool %s; thin volumes will fail to write when it is full",
				now.available, now.total, p.options.Pool),
		})
	}
	return problems
}

func (p *Pool) recordHealth() []backend.HealthProblem {
	broken := p.index.brokenEntries()
	if len(broken) == 0 {
		return nil
	}
	first := slices.Sorted(maps.Keys(broken))[0]
	return []backend.HealthProblem{{
		Kind: backend.HealthDegraded, Reason: "RecordsUnusable",
		Message: fmt.Sprintf("%d entries cannot be used and are not changed, the first is %s: %v",
			len(broken), first, broken[first]),
	}}
}
