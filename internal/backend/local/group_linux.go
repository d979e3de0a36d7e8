package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Group finds a complete group; ErrNotFound.
func (p *Pool) Group(_ context.Context, id string) (backend.GroupSnapshot, error) {
	if !isID(groupPrefix, id) {
		return backend.GroupSnapshot{}, fmt.Errorf("%w: group snapshot %.128q", backend.ErrNotFound, id)
	}
	record, found, err := p.index.group(id)
	if err != nil {
		return backend.GroupSnapshot{}, err
	}
	if !found {
		return backend.GroupSnapshot{}, fmt.Errorf("%w: group snapshot %s", backend.ErrNotFound, id)
	}
	if record.State == deleting {
		return backend.GroupSnapshot{}, fmt.Errorf("%w: group snapshot %s is deleted in part; delete it again", backend.ErrDataLoss, id)
	}
	return p.groupOf(record)
}

func (p *Pool) groupOf(record groupRecord) (backend.GroupSnapshot, error) {
	group := backend.GroupSnapshot{
		ID: record.ID, Name: record.Name, Created: record.Created, Ready: true, Parameters: maps.Clone(record.Parameters),
	}
	for _, source := range record.SourceIDs {
		member, err := p.findSnapshot(memberID(record.Name, source))
		if err != nil {
			return backend.GroupSnapshot{}, fmt.Errorf("%w: group snapshot %s lacks its member of volume %s: %w", backend.ErrDataLoss, record.ID, source, err)
		}
		group.Snapshots = append(group.Snapshots, member.snapshot())
	}
	return group, nil
}

// GroupByName finds a complete group; ErrNotFound.
func (p *Pool) GroupByName(ctx context.Context, name string) (backend.GroupSnapshot, error) {
	group, err := p.Group(ctx, idOf(groupPrefix, name))
	if err == nil && group.Name != name {
		return backend.GroupSnapshot{}, collision(group.ID, group.Name, name)
	}
	return group, err
}

// CreateGroup cuts several volumes at one instant: all filesystems are frozen
// before the first file is cloned. The record of the group is the intent of all
// members and, once ready, what makes them visible.
func (p *Pool) CreateGroup(ctx context.Context, spec backend.GroupSnapshotSpec) (backend.GroupSnapshot, error) {
	wanted := groupRecord{
		header: newHeader(idOf(groupPrefix, spec.Name)), Name: spec.Name,
		SourceIDs:  slices.Compact(slices.Sorted(slices.Values(spec.SourceIDs))),
		Parameters: maps.Clone(spec.Parameters), Created: time.Now().UTC(),
	}
	made, err := p.makeGroup(ctx, wanted)
	if err != nil {
		return backend.GroupSnapshot{}, classify(err)
	}
	return p.groupOf(made)
}

func (p *Pool) makeGroup(ctx context.Context, wanted groupRecord) (groupRecord, error) {
	if have, found, err := p.index.group(wanted.ID); found || err != nil {
		return have, errors.Join(err, taken(have, wanted))
	}
	members, err := p.openMembers(ctx, wanted)
	defer closeMembers(members)
	if err != nil {
		return groupRecord{}, err
	}
	if err := p.admitMembers(ctx, wanted.ID, members); err != nil {
		return groupRecord{}, err
	}
	defer p.ledger.settle(wanted.ID)
	entry := groupPath(wanted.ID)
	held, record, err := begin(p, entry, groupFile, wanted)
	if err != nil || record.State == ready {
		return record, err
	}
	defer held.release()
	if err := p.buildGroup(ctx, entry, &record, members); err != nil {
		return groupRecord{}, p.undoGroup(entry, members, err)
	}
	return record, nil
}

// member is one snapshot of a group that is being made.
type member struct {
	record snapshotRecord
	from   *origin
	held   *hold
	data   *os.File
}

func (p *Pool) openMembers(ctx context.Context, group groupRecord) ([]*member, error) {
	var members []*member
	for _, id := range group.SourceIDs {
		from, err := p.openLive(ctx, id)
		if err != nil {
			return members, err
		}
		record := snapshotRecord{
			header: newHeader(memberID(group.Name, id)), Name: group.Name + "/" + id, SourceID: id, GroupID: group.ID,
		}
		record.describe(from)
		members = append(members, &member{record: record, from: from})
	}
	return members, nil
}

func closeMembers(members []*member) {
	for _, m := range members {
		m.from.close()
		if m.data != nil {
			_ = m.data.Close()
		}
		if m.held != nil {
			m.held.release()
		}
	}
}

func (p *Pool) admitMembers(ctx context.Context, id string, members []*member) error {
	var sum int64
	for _, m := range members {
		need, err := p.needOfCut(m.from)
		if err != nil {
			return err
		}
		sum += need
	}
	return p.admit(ctx, id, sum)
}

func (p *Pool) buildGroup(ctx context.Context, entry string, record *groupRecord, members []*member) error {
	if err := p.cutMembers(ctx, members); err != nil {
		return err
	}
	for _, m := range members {
		if err := p.finishMember(ctx, m); err != nil {
			return err
		}
	}
	record.State = ready
	if err := p.writeRecord(entry, groupFile, record); err != nil {
		return err
	}
	if err := p.points.Hit("local/group/ready"); err != nil {
		return err
	}
	for _, m := range members {
		p.index.putSnapshots(m.record)
	}
	p.index.putGroup(*record)
	return nil
}

func (p *Pool) cutMembers(ctx context.Context, members []*member) error {
	cuts := make([]cutting, len(members))
	for i, m := range members {
		if err := p.beginMember(m); err != nil {
			return err
		}
		cuts[i] = cutting{origin: m.from, target: m.data}
	}
	if err := p.cut(ctx, cuts); err != nil {
		return err
	}
	for _, m := range members {
		p.noteShared(m.from)
		m.from.close()
	}
	return nil
}

// beginMember replaces what an interrupted call left: an instant that is past
// cannot be cut again.
func (p *Pool) beginMember(m *member) error {
	entry := snapshotPath(m.record.ID)
	if held, err := p.take(entry, unix.LOCK_EX); err == nil {
		err = p.discard(entry)
		held.release()
		if err != nil {
			return err
		}
	} else if !errors.Is(err, backend.ErrNotFound) {
		return err
	}
	held, _, err := begin(p, entry, snapshotFile, m.record)
	if err != nil {
		return err
	}
	m.held = held
	m.data, err = p.createData(entry)
	return err
}

func (p *Pool) finishMember(ctx context.Context, m *member) error {
	if m.from.thick {
		if err := p.unshare(ctx, m.data, m.record.Size); err != nil {
			return err
		}
	}
	if err := m.data.Sync(); err != nil {
		return err
	}
	m.record.State = ready
	if err := p.writeRecord(snapshotPath(m.record.ID), snapshotFile, m.record); err != nil {
		return err
	}
	return p.points.Hit("local/group/member")
}

// undoGroup removes the members that were begun, then the group.
func (p *Pool) undoGroup(entry string, members []*member, cause error) error {
	for _, m := range members {
		if m.held != nil {
			cause = p.undo(snapshotPath(m.record.ID), cause)
		}
	}
	return p.undo(entry, cause)
}

// DeleteGroup removes a group with its snapshots. The record says so first, so
// that a crash in between does not leave a group without some of its members.
func (p *Pool) DeleteGroup(ctx context.Context, id string) error {
	if _, err := p.Group(ctx, id); err != nil && !errors.Is(err, backend.ErrDataLoss) {
		return err
	}
	return classify(p.deleteGroup(id))
}

func (p *Pool) deleteGroup(id string) error {
	entry := groupPath(id)
	defer p.forgetIfGone(entry)
	held, err := p.take(entry, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer held.release()
	record, err := readRecord[groupRecord](p.root, entry, groupFile)
	if err != nil {
		return err
	}
	members, err := p.takeMembers(record)
	defer releaseAll(members)
	if err != nil {
		return err
	}
	record.State = deleting
	if err := p.writeRecord(entry, groupFile, record); err != nil {
		return err
	}
	p.index.putGroup(record)
	if err := p.points.Hit("local/group/deleting"); err != nil {
		return err
	}
	return p.finishDeletion(entry, record, members)
}

// takeMembers locks all members first: one that is just being restored makes
// the whole deletion wait.
func (p *Pool) takeMembers(record groupRecord) ([]*hold, error) {
	var members []*hold
	for _, source := range record.SourceIDs {
		held, err := p.take(snapshotPath(memberID(record.Name, source)), unix.LOCK_EX)
		if errors.Is(err, backend.ErrNotFound) {
			continue
		}
		if err != nil {
			return members, err
		}
		members = append(members, held)
	}
	return members, nil
}

func releaseAll(holds []*hold) {
	for _, held := range holds {
		held.release()
	}
}

func (p *Pool) finishDeletion(entry string, record groupRecord, members []*hold) error {
	for _, source := range record.SourceIDs {
		defer p.forgetIfGone(snapshotPath(memberID(record.Name, source)))
	}
	for _, held := range members {
		if err := p.discard(held.path); err != nil {
			return err
		}
	}
	defer p.forgetIfGone(entry)
	return p.discard(entry)
}

// recoverGroups comes before the snapshots, which are complete only with their
// group.
func (p *Pool) recoverGroups(ctx context.Context) error {
	if p.options.Role == RoleNode {
		return nil
	}
	for _, id := range p.namesIn(groupsDir) {
		if !isID(groupPrefix, id) {
			continue
		}
		if err := p.leaveAlone(ctx, groupPath(id), p.recoverGroup(ctx, id)); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pool) recoverGroup(ctx context.Context, id string) error {
	entry := groupPath(id)
	record, err := readRecord[groupRecord](p.root, entry, groupFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p.dropWithoutRecord(entry)
	case err != nil:
		return p.recoverUnfinished(ctx, entry, nil, err)
	case record.State == ready:
		p.dropTemps(entry)
		p.index.putGroup(record)
		return nil
	}
	for _, source := range record.SourceIDs {
		if err := p.thawSource(ctx, source); err != nil {
			return err
		}
	}
	members, err := p.takeMembers(record)
	defer releaseAll(members)
	if err != nil {
		return err
	}
	p.log.Info("removing what an interrupted group snapshot left", "id", id, "state", record.State)
	return p.finishDeletion(entry, record, members)
}
