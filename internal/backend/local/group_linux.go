package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Group finds a complete group; ErrNotFound.
func (p *Pool) Group(ctx context.Context, id string) (backend.GroupSnapshot, error) {
	record, err := find(ctx, p, "group snapshot", groupPrefix, groupPath, id, p.index.group)
	if err != nil {
		return backend.GroupSnapshot{}, err
	}
	return p.groupOf(ctx, record)
}

func (p *Pool) groupOf(ctx context.Context, record groupRecord) (backend.GroupSnapshot, error) {
	group := backend.GroupSnapshot{
		ID: record.ID, Name: record.Name, Created: record.Created, Ready: true, Parameters: maps.Clone(record.Parameters),
	}
	for _, source := range record.SourceIDs {
		member, err := p.findSnapshot(ctx, memberID(record.Name, source))
		if err != nil {
			return backend.GroupSnapshot{}, fmt.Errorf("%w: group snapshot %s lacks its member of volume %s: %w",
				backend.ErrDataLoss, record.ID, source, err)
		}
		group.Snapshots = append(group.Snapshots, member.snapshot(p.topology))
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

// CreateGroup snapshots several volumes at one instant: all filesystems are frozen
// before the first file is cloned. The record of the group is the intent of all
// members and, once ready, what makes them visible.
func (p *Pool) CreateGroup(ctx context.Context, spec backend.GroupSnapshotSpec) (backend.GroupSnapshot, error) {
	desired := groupRecord{
		header: newHeader(idOf(groupPrefix, spec.Name)), Name: spec.Name,
		SourceIDs:  slices.Compact(slices.Sorted(slices.Values(spec.SourceIDs))),
		Parameters: maps.Clone(spec.Parameters), Created: time.Now().UTC(),
	}
	made, err := p.makeGroup(ctx, desired)
	if err != nil {
		return backend.GroupSnapshot{}, classify(err)
	}
	return p.groupOf(ctx, made)
}

func (p *Pool) makeGroup(ctx context.Context, desired groupRecord) (groupRecord, error) {
	entry := groupPath(desired.ID)
	if err := p.ready(ctx); err != nil {
		return groupRecord{}, err
	}
	if err := p.resolve(ctx, entry); err != nil {
		return groupRecord{}, err
	}
	if have, found, err := p.index.group(desired.ID); found || err != nil {
		return have, errors.Join(err, checkSame(have, desired))
	}
	members, err := p.openMembers(ctx, desired)
	defer closeMembers(members)
	if err != nil {
		return groupRecord{}, err
	}
	if err := p.admitMembers(ctx, desired.ID, members); err != nil {
		return groupRecord{}, err
	}
	defer p.releaseUnlessUnresolved(entry)
	lock, record, err := begin(ctx, p, entry, groupFile, desired)
	if err != nil {
		return record, err
	}
	defer lock.release()
	if err := p.buildGroup(ctx, entry, &record, members); err != nil {
		return groupRecord{}, p.undoGroup(entry, members, err)
	}
	return record, nil
}

// member is one snapshot of a group that is being made.
type member struct {
	record snapshotRecord
	from   *lockedSource
	lock   *entryLock
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
		if m.lock != nil {
			m.lock.release()
		}
	}
}

func (p *Pool) admitMembers(ctx context.Context, id string, members []*member) error {
	var sum int64
	for _, m := range members {
		need, err := p.needOfSnapshot(m.from)
		if err != nil {
			return err
		}
		sum += need
	}
	return p.admit(ctx, id, sum)
}

func (p *Pool) buildGroup(ctx context.Context, entry string, record *groupRecord, members []*member) error {
	if err := p.copyMembers(ctx, record.ID, members); err != nil {
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

func (p *Pool) copyMembers(ctx context.Context, group string, members []*member) error {
	copies := make([]fileCopy, len(members))
	for i, m := range members {
		if err := p.beginMember(ctx, m); err != nil {
			return err
		}
		copies[i] = fileCopy{source: m.from, target: m.data}
	}
	if err := p.copyPointInTime(ctx, copies); err != nil {
		return err
	}
	for _, m := range members {
		p.noteShared(m.from, group)
		m.from.close()
	}
	return nil
}

// beginMember replaces the member of an interrupted call: a past instant cannot be
// copied again.
func (p *Pool) beginMember(ctx context.Context, m *member) error {
	entry := snapshotPath(m.record.ID)
	stale, err := p.awaitLock(ctx, entry, unix.LOCK_EX)
	switch {
	case err == nil:
		err = p.delete(entry)
		stale.release()
		if err != nil {
			return err
		}
	case !errors.Is(err, backend.ErrNotFound):
		return err
	}
	p.unresolved.remove(entry) // replaced now, or undone with the group
	lock, _, err := begin(ctx, p, entry, snapshotFile, m.record)
	if err != nil {
		return err
	}
	m.lock = lock
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

// undoGroup removes the group, then the members that were begun. In this order
// because the record of the group may be complete on disk already: a crash in
// between leaves members of a group that does not exist, which a start removes,
// and never a group without its members.
func (p *Pool) undoGroup(entry string, members []*member, cause error) error {
	for _, m := range members {
		if m.lock != nil {
			p.unresolved.add(snapshotPath(m.record.ID), cause)
		}
	}
	if errors.Is(cause, errStillFrozen) {
		p.leaveUnresolved(entry, cause)
		return cause
	}
	if cause = p.undo(entry, cause); p.unresolved.has(entry) {
		return cause
	}
	for _, m := range members {
		if m.lock == nil {
			continue
		}
		p.unresolved.remove(m.lock.path)
		cause = p.undo(m.lock.path, cause)
	}
	return cause
}

// DeleteGroup removes a group with its snapshots, also after an interrupted creation or
// deletion. ErrNotFound if none of them exists.
func (p *Pool) DeleteGroup(ctx context.Context, id string) error {
	if _, err := p.Group(ctx, id); err != nil && !errors.Is(err, backend.ErrDataLoss) &&
		!errors.Is(err, backend.ErrNotFound) {
		return err
	}
	if !isID(groupPrefix, id) {
		return fmt.Errorf("%w: group snapshot %.128q", backend.ErrNotFound, id)
	}
	return classify(p.deleteGroup(ctx, id))
}

func (p *Pool) deleteGroup(ctx context.Context, id string) error {
	if err := p.ready(ctx); err != nil {
		return err
	}
	entry := groupPath(id)
	defer p.forgetIfGone(entry)
	lock, err := p.awaitLock(ctx, entry, unix.LOCK_EX)
	if errors.Is(err, backend.ErrNotFound) {
		return errors.Join(p.resolveAll(ctx), p.absent(err)) // members that a failed deletion left
	}
	if err != nil {
		return err
	}
	defer lock.release()
	record, err := readRecord[groupRecord](p.root, entry, groupFile)
	if err != nil {
		return err
	}
	members, err := p.lockMembers(ctx, record)
	defer releaseAll(members)
	if err != nil {
		return err
	}
	return p.finishDeletion(ctx, entry, members, p.discardPresent)
}

// lockMembers locks all members first: one that is just being restored makes
// the whole deletion wait.
func (p *Pool) lockMembers(ctx context.Context, record groupRecord) ([]*entryLock, error) {
	var members []*entryLock
	for _, source := range record.SourceIDs {
		lock, err := p.awaitLock(ctx, snapshotPath(memberID(record.Name, source)), unix.LOCK_EX)
		if errors.Is(err, backend.ErrNotFound) {
			continue
		}
		if err != nil {
			return members, err
		}
		members = append(members, lock)
	}
	return members, nil
}

func releaseAll(locks []*entryLock) {
	for _, lock := range locks {
		lock.release()
	}
}

// finishDeletion removes a group with one rename, which needs no room on a full
// filesystem, then its members. Members of a group that does not exist are
// removed by a start, or by resolve.
func (p *Pool) finishDeletion(ctx context.Context, entry string, members []*entryLock, remove remover) error {
	err := remove(ctx, entry)
	if _, statErr := p.root.Lstat(entry); !errors.Is(statErr, fs.ErrNotExist) {
		for _, lock := range members {
			p.unresolved.add(lock.path, err) // resolved after their group
		}
		p.leaveUnresolved(entry, err)
		return errors.Join(err, statErr)
	}
	p.forget(entry)
	failed := []error{err}
	for _, lock := range members {
		p.index.forget(path.Base(lock.path))
		err := p.points.Hit("local/group/deleting")
		if err == nil {
			err = p.discard(lock.path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.leaveUnresolved(lock.path, err)
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// recoverGroups comes before the snapshots, which are complete only with their
// group.
func (p *Pool) recoverGroups(ctx context.Context) error {
	if p.options.Role == RoleNode {
		return nil
	}
	// An error here must end the start: a group that is not seen would have its
	// members removed.
	names, err := p.list(groupsDir)
	if err != nil {
		return err
	}
	for _, id := range names {
		if !isID(groupPrefix, id) {
			continue
		}
		if err := p.leaveAlone(ctx, groupPath(id), p.recoverGroup(ctx, id, p.dropEntry)); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pool) recoverGroup(ctx context.Context, id string, remove remover) error {
	entry := groupPath(id)
	record, err := readRecord[groupRecord](p.root, entry, groupFile)
	switch {
	case err != nil:
		return p.recoverUnfinished(ctx, entry, nil, err, remove)
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
	members, err := p.lockMembers(ctx, record)
	defer releaseAll(members)
	if err != nil {
		return err
	}
	p.log.Info("removing an interrupted group snapshot", "id", id, "state", record.State)
	return p.finishDeletion(ctx, entry, members, remove)
}
