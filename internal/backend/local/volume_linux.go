package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// CheckParameters rejects invalid parameters (ErrInvalid).
func (p *Pool) CheckParameters(parameters, mutable map[string]string) error {
	return checkParameters(parameters, mutable)
}

// Volume returns a complete volume; ErrNotFound if there is none.
func (p *Pool) Volume(ctx context.Context, id string) (backend.Volume, error) {
	record, err := find(ctx, p, "volume", volumePrefix, volumePath, id, p.index.volume)
	if err != nil {
		return backend.Volume{}, err
	}
	return record.volume(p.topology), nil
}

// find returns the record of a complete entry; ErrNotFound if there is none. kind
// names it in errors.
func find[T any](
	ctx context.Context, p *Pool, kind, prefix string, entry func(id string) string, id string,
	lookup func(id string) (T, bool, error),
) (record T, err error) {
	if err := p.usable(); err != nil {
		return record, err
	}
	if !isID(prefix, id) {
		return record, fmt.Errorf("%w: %s %.128q", backend.ErrNotFound, kind, id)
	}
	if err := p.resolve(ctx, entry(id)); err != nil {
		return record, err
	}
	record, found, err := lookup(id)
	if err == nil && !found {
		err = fmt.Errorf("%w: %s %s", backend.ErrNotFound, kind, id)
	}
	return record, err
}

// VolumeByName returns a complete volume; ErrNotFound if there is none.
func (p *Pool) VolumeByName(ctx context.Context, name string) (backend.Volume, error) {
	volume, err := p.Volume(ctx, idOf(volumePrefix, name))
	if err == nil && volume.Name != name {
		return backend.Volume{}, collision(volume.ID, volume.Name, name)
	}
	return volume, err
}

func collision(id, have, want string) error {
	return fmt.Errorf("%s belongs to name %q and cannot be given to %q: the two names have one hash; use another name",
		id, have, want)
}

// Volumes lists complete volumes except inline ones.
func (p *Pool) Volumes(ctx context.Context, after string, limit int) ([]backend.Volume, error) {
	if err := p.resolveForListing(ctx); err != nil {
		return nil, err
	}
	records := page(&p.index, func(x *index) map[string]volumeRecord { return x.volumes },
		func(r volumeRecord) bool { return strings.HasPrefix(r.ID, volumePrefix) }, after, limit)
	volumes := make([]backend.Volume, len(records))
	for i, record := range records {
		volumes[i] = record.volume(p.topology)
	}
	return volumes, nil
}

// CreateVolume creates a volume. If an interrupted call with the same arguments began
// it, CreateVolume completes it; an incomplete volume with other arguments is replaced.
func (p *Pool) CreateVolume(ctx context.Context, spec backend.VolumeSpec) (backend.Volume, error) {
	desired, err := p.planVolume(spec)
	if err != nil {
		return backend.Volume{}, err
	}
	made, err := p.makeVolume(ctx, desired)
	if err != nil {
		return backend.Volume{}, classify(err)
	}
	return made.volume(p.topology), nil
}

func (p *Pool) planVolume(spec backend.VolumeSpec) (volumeRecord, error) {
	if !p.reachable(spec.Topology) {
		return volumeRecord{}, fmt.Errorf("%w: volumes of this pool can be reached from %s=%s only",
			backend.ErrNoSpace, TopologyKey, p.options.NodeID)
	}
	if err := checkCapabilities(spec.Size, spec.Capabilities); err != nil {
		return volumeRecord{}, err
	}
	provisioning, err := provisioningOf(spec.Parameters, spec.MutableParameters)
	if err != nil {
		return volumeRecord{}, err
	}
	sector, err := sectorSizeOf(spec.Parameters)
	if err != nil {
		return volumeRecord{}, err
	}
	return volumeRecord{
		header: newHeader(idOf(volumePrefix, spec.Name)),
		Name:   spec.Name, Size: spec.Size, Provisioning: provisioning, SectorSize: sector,
		Parameters: maps.Clone(spec.Parameters), Mutable: maps.Clone(spec.MutableParameters),
		Source: source(spec.Source), Created: time.Now().UTC(),
	}, nil
}

// reachable reports whether one of the requisite topologies is this node.
func (p *Pool) reachable(requirement *backend.TopologyRequirement) bool {
	if requirement == nil || len(requirement.Requisite) == 0 {
		return true
	}
	for _, requisite := range requirement.Requisite {
		if value, ok := requisite[TopologyKey]; !ok || value == p.options.NodeID {
			return true
		}
	}
	return false
}

// makeVolume creates the volume of a record, from the intent to the state "ready".
func (p *Pool) makeVolume(ctx context.Context, desired volumeRecord) (volumeRecord, error) {
	entry := volumePath(desired.ID)
	if err := p.ready(ctx); err != nil {
		return volumeRecord{}, err
	}
	if err := p.resolve(ctx, entry); err != nil {
		return volumeRecord{}, err
	}
	if have, found, err := p.index.volume(desired.ID); found || err != nil {
		return have, errors.Join(err, checkSame(have, desired))
	}
	from, err := p.openSource(ctx, desired.Source)
	if err != nil {
		return volumeRecord{}, err
	}
	defer from.close()
	if err := from.checkFits(desired.Size); err != nil {
		return volumeRecord{}, err
	}
	if desired.SectorSize, err = from.sectorSizeFor(desired); err != nil {
		return volumeRecord{}, err
	}
	need, err := p.needOfVolume(desired, from)
	if err != nil {
		return volumeRecord{}, err
	}
	if err := p.admit(ctx, desired.ID, need); err != nil {
		return volumeRecord{}, err
	}
	defer p.releaseUnlessUnresolved(entry)
	lock, record, err := begin(ctx, p, entry, volumeFile, desired)
	if err != nil {
		return record, err
	}
	defer lock.release()
	if err := p.buildVolume(ctx, entry, &record, from); err != nil {
		return volumeRecord{}, p.abandon(ctx, entry, record.Copy, err)
	}
	return record, nil
}

// needOfVolume is how many bytes a new volume takes, now or when it is written to.
func (p *Pool) needOfVolume(desired volumeRecord, from *lockedSource) (int64, error) {
	need := p.ledger.need(account{size: desired.Size, thick: desired.thick()})
	if from == nil || p.reflink.Load() && !from.thick {
		return need, nil
	}
	// The blocks are copied at once, also those that an overcommitted volume is not promised.
	copied, err := allocated(from.data)
	return max(need, p.ledger.withOverhead(copied)), err
}

func (p *Pool) buildVolume(ctx context.Context, entry string, record *volumeRecord, from *lockedSource) error {
	data, err := p.createData(entry)
	if err != nil {
		return err
	}
	defer func() { _ = data.Close() }()
	if from != nil {
		if err := p.fillVolume(ctx, entry, record, data, from); err != nil {
			return err
		}
	}
	if err := p.shape(ctx, data, *record, from); err != nil {
		return err
	}
	return p.finishVolume(entry, record, data)
}

// fillVolume copies the source's content to the data file. It unlocks the source
// before any other long step.
func (p *Pool) fillVolume(
	ctx context.Context, entry string, record *volumeRecord, data *os.File, from *lockedSource,
) error {
	defer from.close()
	if record.Copy != nil && record.Copy.Complete {
		return nil
	}
	save := func(done copyState) error {
		record.Copy = &done
		return p.writeRecord(entry, volumeFile, record)
	}
	if err := p.copyPointInTime(ctx, []fileCopy{{source: from, target: data, begun: record.Copy, save: save}}); err != nil {
		return err
	}
	// Keep the mark from the time of the copy: the source may be formatted later.
	if err := p.keepMark(entry, from.formatted); err != nil {
		return err
	}
	p.noteShared(from, record.ID)
	if !record.thick() && (!from.thick || !p.reflink.Load()) {
		return nil
	}
	// Allocation may take long; a retry allocates only the blocks that are missing.
	if err := data.Sync(); err != nil {
		return err
	}
	return save(copyState{Complete: true})
}

// shape sets the data file's size and, for a thick volume, allocates all its blocks. Blocks
// that it shares with its source are copied if either of the two is thick.
func (p *Pool) shape(ctx context.Context, data *os.File, record volumeRecord, from *lockedSource) error {
	if record.thick() {
		if err := p.reserve(ctx, data, record.Size); err != nil {
			return err
		}
		if err := p.points.Hit("local/create/allocated"); err != nil {
			return err
		}
	}
	if from != nil && (record.thick() || from.thick) {
		if err := p.unshare(ctx, data, record.Size); err != nil {
			return err
		}
	}
	if err := data.Truncate(record.Size); err != nil {
		return err
	}
	if err := p.points.Hit("local/create/sized"); err != nil {
		return err
	}
	return data.Sync()
}

// finishVolume completes a volume with the rename of its record. All steps that can
// fail come before: a volume is in the index and the ledger, or its creation is undone.
func (p *Pool) finishVolume(entry string, record *volumeRecord, data *os.File) error {
	if err := p.points.Hit("local/create/synced"); err != nil {
		return err
	}
	opened, err := p.accountOf(*record, data)
	if err != nil {
		return err
	}
	record.State, record.Copy = ready, nil
	if err := p.writeRecord(entry, volumeFile, record); err != nil {
		return err
	}
	if err := p.points.Hit("local/create/ready"); err != nil {
		return err
	}
	p.enterVolume(*record, opened)
	return nil
}

// enterVolume adds a complete volume to the ledger and then to the index, so that no
// other volume is admitted in between to space that this one may need.
func (p *Pool) enterVolume(record volumeRecord, opened account) {
	p.ledger.set(record.ID, opened)
	p.index.putVolume(record)
}

// accountOf is the account of a volume that is about to be complete.
func (p *Pool) accountOf(record volumeRecord, data *os.File) (account, error) {
	has := account{size: record.Size, thick: record.thick(), mayShare: p.reflink.Load() && record.Source != source{}}
	if !has.mayShare {
		bytes, err := allocated(data)
		if err != nil {
			return has, err
		}
		has.exclusive = bytes
	} else if record.thick() {
		has.exclusive = record.Size // unshared above
	}
	return has, nil
}

// DeleteVolume deletes a volume, complete or incomplete. ErrInUse if a loop device of
// this machine uses its file; ErrNotFound if it no longer exists. Snapshots and clones
// are separate files and stay.
func (p *Pool) DeleteVolume(ctx context.Context, id string) error {
	if !isID(volumePrefix, id) {
		return fmt.Errorf("%w: volume %.128q", backend.ErrNotFound, id)
	}
	if _, _, err := p.index.volume(id); err != nil {
		return err
	}
	return classify(p.deleteVolume(ctx, id))
}

func (p *Pool) deleteVolume(ctx context.Context, id string) error {
	entry := volumePath(id)
	if err := p.ready(ctx); err != nil {
		return err
	}
	if err := p.resolve(ctx, entry); err != nil {
		return err
	}
	defer p.forgetIfGone(entry)
	lock, err := p.awaitLock(ctx, entry, unix.LOCK_EX)
	if err != nil {
		return p.absent(err)
	}
	defer lock.release()
	if err := p.refuseInUse(ctx, entry, id); err != nil {
		return err
	}
	if err := p.points.Hit("local/delete/checked"); err != nil {
		return err
	}
	return p.delete(entry)
}
