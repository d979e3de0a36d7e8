package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// CheckSnapshotParameters refuses every parameter: a snapshot of this backend
// has none.
func (p *Pool) CheckSnapshotParameters(parameters map[string]string) error {
	return refuseParameters(parameters)
}

// CheckGroupParameters refuses every parameter.
func (p *Pool) CheckGroupParameters(parameters map[string]string) error {
	return refuseParameters(parameters)
}

func refuseParameters(parameters map[string]string) error {
	if len(parameters) == 0 {
		return nil
	}
	keys := slices.Sorted(maps.Keys(parameters))
	return fmt.Errorf("%w: parameters: unknown %s; known are none", backend.ErrInvalid, strings.Join(keys, ", "))
}

func (p *Pool) findSnapshot(ctx context.Context, id string) (snapshotRecord, error) {
	return find(ctx, p, "snapshot", snapshotPrefix, snapshotPath, id, p.index.snapshot)
}

// Snapshot finds a complete snapshot; ErrNotFound.
func (p *Pool) Snapshot(ctx context.Context, id string) (backend.Snapshot, error) {
	record, err := p.findSnapshot(ctx, id)
	if err != nil {
		return backend.Snapshot{}, err
	}
	return record.snapshot(p.topology), nil
}

// SnapshotByName finds a snapshot that was created on its own; ErrNotFound.
func (p *Pool) SnapshotByName(ctx context.Context, name string) (backend.Snapshot, error) {
	snapshot, err := p.Snapshot(ctx, idOf(snapshotPrefix, name))
	if err == nil && snapshot.Name != name {
		return backend.Snapshot{}, collision(snapshot.ID, snapshot.Name, name)
	}
	return snapshot, err
}

// Snapshots lists snapshots, members of groups included.
func (p *Pool) Snapshots(
	ctx context.Context, filter backend.SnapshotFilter, after string, limit int,
) ([]backend.Snapshot, error) {
	if err := p.resolveForListing(ctx); err != nil {
		return nil, err
	}
	records := page(&p.index, func(x *index) map[string]snapshotRecord { return x.snapshots },
		func(r snapshotRecord) bool {
			return (filter.SnapshotID == "" || r.ID == filter.SnapshotID) &&
				(filter.SourceID == "" || r.SourceID == filter.SourceID)
		}, after, limit)
	snapshots := make([]backend.Snapshot, len(records))
	for i, record := range records {
		snapshots[i] = record.snapshot(p.topology)
	}
	return snapshots, nil
}

// CreateSnapshot copies a volume. With reflink that takes as long as writing dirty
// pages; without, the content is copied. A thick volume's snapshot gets blocks of its
// own, since the volume must never need new ones.
func (p *Pool) CreateSnapshot(ctx context.Context, spec backend.SnapshotSpec) (backend.Snapshot, error) {
	if !p.reachable(spec.Topology) {
		return backend.Snapshot{}, fmt.Errorf("%w: snapshots of this pool can be restored on %s=%s only",
			backend.ErrNoSpace, TopologyKey, p.options.NodeID)
	}
	desired := snapshotRecord{
		header: newHeader(idOf(snapshotPrefix, spec.Name)), Name: spec.Name, SourceID: spec.SourceID,
		Parameters: maps.Clone(spec.Parameters),
	}
	made, err := p.makeSnapshot(ctx, desired)
	if err != nil {
		return backend.Snapshot{}, classify(err)
	}
	return made.snapshot(p.topology), nil
}

func (p *Pool) makeSnapshot(ctx context.Context, desired snapshotRecord) (snapshotRecord, error) {
	entry := snapshotPath(desired.ID)
	if err := p.ready(ctx); err != nil {
		return snapshotRecord{}, err
	}
	if err := p.resolve(ctx, entry); err != nil {
		return snapshotRecord{}, err
	}
	if have, found, err := p.index.snapshot(desired.ID); found || err != nil {
		return have, errors.Join(err, checkSame(have, desired))
	}
	from, err := p.openLive(ctx, desired.SourceID)
	if err != nil {
		return snapshotRecord{}, err
	}
	defer from.close()
	desired.describe(from)
	need, err := p.needOfSnapshot(from)
	if err != nil {
		return snapshotRecord{}, err
	}
	if err := p.admit(ctx, desired.ID, need); err != nil {
		return snapshotRecord{}, err
	}
	defer p.releaseUnlessUnresolved(entry)
	lock, record, err := begin(ctx, p, entry, snapshotFile, desired)
	if err != nil {
		return record, err
	}
	defer lock.release()
	if err := p.buildSnapshot(ctx, entry, &record, from); err != nil {
		return snapshotRecord{}, p.abandon(ctx, entry, record.Copy, err)
	}
	return record, nil
}

// describe copies the facts of the source that a restore needs.
func (r *snapshotRecord) describe(from *lockedSource) {
	r.Size, r.SectorSize, r.Formatted = from.size, from.sectorSize, from.formatted
	r.Created = time.Now().UTC()
}

// needOfSnapshot is how many bytes a snapshot of a volume takes, now or when the volume is
// written to: shared blocks need a new one at the first write.
func (p *Pool) needOfSnapshot(from *lockedSource) (int64, error) {
	if p.reflink.Load() && !from.thick {
		before, err := measureFile(from.data, p.ledger.get(from.id))
		if err != nil {
			return 0, err
		}
		p.ledger.observedOne(from.id, before)
		after := before
		after.exclusive = 0
		return p.ledger.need(after) - p.ledger.need(before), nil
	}
	bytes, err := allocated(from.data)
	return p.ledger.withOverhead(bytes), err
}

func (p *Pool) buildSnapshot(ctx context.Context, entry string, record *snapshotRecord, from *lockedSource) error {
	data, err := p.createData(entry)
	if err != nil {
		return err
	}
	defer func() { _ = data.Close() }()
	if err := p.fillSnapshot(ctx, entry, record, data, from); err != nil {
		return err
	}
	if from.thick {
		if err := p.unshare(ctx, data, record.Size); err != nil {
			return err
		}
	}
	return p.finishSnapshot(entry, record, data)
}

func (p *Pool) fillSnapshot(
	ctx context.Context, entry string, record *snapshotRecord, data *os.File, from *lockedSource,
) error {
	defer from.close()
	if record.Copy != nil && record.Copy.Complete {
		return nil
	}
	record.describe(from)
	save := func(done copyState) error {
		record.Copy = &done
		return p.writeRecord(entry, snapshotFile, record)
	}
	if err := p.copyPointInTime(ctx, []fileCopy{{source: from, target: data, begun: record.Copy, save: save}}); err != nil {
		return err
	}
	p.noteShared(from, record.ID)
	if !from.thick || !p.reflink.Load() {
		return nil
	}
	if err := data.Sync(); err != nil {
		return err
	}
	return save(copyState{Complete: true})
}

// noteShared enters into the ledger that a snapshot or a clone shares a volume's blocks.
// promise is the ID under which its room was promised.
func (p *Pool) noteShared(from *lockedSource, promise string) {
	if p.reflink.Load() && from.live {
		p.ledger.share(from.id, promise)
	}
}

func (p *Pool) finishSnapshot(entry string, record *snapshotRecord, data *os.File) error {
	if err := data.Sync(); err != nil {
		return err
	}
	if err := p.points.Hit("local/snapshot/synced"); err != nil {
		return err
	}
	record.State, record.Copy = ready, nil
	if err := p.writeRecord(entry, snapshotFile, record); err != nil {
		return err
	}
	if err := p.points.Hit("local/snapshot/ready"); err != nil {
		return err
	}
	p.index.putSnapshots(*record)
	return nil
}

// DeleteSnapshot removes a snapshot, also of an interrupted creation. Volumes restored
// from it are separate files and stay. ErrBusy while one is being restored. ErrNotFound
// if it no longer exists.
func (p *Pool) DeleteSnapshot(ctx context.Context, id string) error {
	if _, err := p.findSnapshot(ctx, id); err != nil &&
		(!errors.Is(err, backend.ErrNotFound) || !isID(snapshotPrefix, id)) {
		return err
	}
	return classify(p.dropSnapshot(ctx, id))
}

func (p *Pool) dropSnapshot(ctx context.Context, id string) error {
	if err := p.ready(ctx); err != nil {
		return err
	}
	entry := snapshotPath(id)
	defer p.forgetIfGone(entry)
	lock, err := p.awaitLock(ctx, entry, unix.LOCK_EX)
	if err != nil {
		return p.absent(err)
	}
	defer lock.release()
	if err := p.points.Hit("local/delete/checked"); err != nil {
		return err
	}
	return p.delete(entry)
}
