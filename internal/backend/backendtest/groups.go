package backendtest

import (
	"github.com/holdfast-csi/holdfast/internal/backend"
)

func groupRules() []rule {
	return []rule{
		{"a group has one snapshot of each source and may be repeated", groupTwice},
		{"a group name belongs to its sources", groupOfOthers},
		{"a group with an absent source makes nothing", groupOfNothing},
		{"a member is deleted only with its group", deleteMember},
		{"the members named must be those of the group", wrongMembers},
		{"groups survive the end of the process", groupsSurvive},
	}
}

func (b *bench) group(sources ...string) backend.GroupSnapshot {
	b.Helper()
	group, err := b.guard.CreateGroup(b.ctx(), backend.GroupSnapshotSpec{Name: "night", SourceIDs: sources})
	if err != nil {
		b.Fatalf("group snapshot: %v", err)
	}
	return group
}

func members(group backend.GroupSnapshot) []string {
	ids := make([]string, len(group.Snapshots))
	for i, snapshot := range group.Snapshots {
		ids[i] = snapshot.ID
	}
	return ids
}

func groupTwice(b *bench) {
	if !b.guard.Features().Groups {
		return
	}
	one, other := b.create("one"), b.create("other")
	first := b.group(one.ID, other.ID)
	second := b.group(other.ID, one.ID, one.ID)
	if first.ID != second.ID || len(first.Snapshots) != 2 || !first.Ready {
		b.Fatalf("groups %+v and %+v; want one of two snapshots", first, second)
	}
	for _, snapshot := range first.Snapshots {
		found, err := b.guard.Snapshot(b.ctx(), snapshot.ID)
		if err != nil || found.GroupID != first.ID {
			b.Errorf("member %s: %+v, %v; want group %s", snapshot.ID, found, err, first.ID)
		}
	}
}

func groupOfOthers(b *bench) {
	if !b.guard.Features().Groups {
		return
	}
	one, other := b.create("one"), b.create("other")
	b.group(one.ID)
	_, err := b.guard.CreateGroup(b.ctx(), backend.GroupSnapshotSpec{Name: "night",
		SourceIDs: []string{one.ID, other.ID}})
	b.want(err, backend.ErrExists, "the same name for other sources")
}

func groupOfNothing(b *bench) {
	if !b.guard.Features().Groups {
		return
	}
	one := b.create("one")
	_, err := b.guard.CreateGroup(b.ctx(), backend.GroupSnapshotSpec{Name: "night",
		SourceIDs: []string{one.ID, "vol-absent"}})
	b.want(err, backend.ErrNotFound, "an absent source")
	_, err = b.guard.CreateGroup(b.ctx(), backend.GroupSnapshotSpec{Name: "night"})
	b.want(err, backend.ErrInvalid, "no source")
	if ids, _ := b.listedSnapshots(backend.SnapshotFilter{}, "", 0); len(ids) != 0 {
		b.Fatalf("a refused group left snapshots %v", ids)
	}
}

func deleteMember(b *bench) {
	if !b.guard.Features().Groups {
		return
	}
	group := b.group(b.create("one").ID, b.create("other").ID)
	b.want(b.guard.DeleteSnapshot(b.ctx(), group.Snapshots[0].ID), backend.ErrInvalid, "a member alone")
	for range 2 {
		b.must(b.guard.DeleteGroup(b.ctx(), group.ID, members(group)))
	}
	_, err := b.guard.Group(b.ctx(), group.ID, nil)
	b.want(err, backend.ErrNotFound, "after deletion")
	if ids, _ := b.listedSnapshots(backend.SnapshotFilter{}, "", 0); len(ids) != 0 {
		b.Fatalf("the group left snapshots %v", ids)
	}
}

func wrongMembers(b *bench) {
	if !b.guard.Features().Groups {
		return
	}
	one := b.create("one")
	alone := b.snapshot("alone", one.ID)
	group := b.group(one.ID)
	b.want(b.guard.DeleteGroup(b.ctx(), group.ID, []string{alone.ID}), backend.ErrInvalid, "another snapshot")
	_, err := b.guard.Group(b.ctx(), group.ID, append(members(group), alone.ID))
	b.want(err, backend.ErrInvalid, "one snapshot more")
	if _, err := b.guard.Group(b.ctx(), group.ID, members(group)); err != nil {
		b.Fatalf("its members: %v", err)
	}
}

func groupsSurvive(b *bench) {
	if !b.guard.Features().Groups {
		return
	}
	group := b.group(b.create("one").ID, b.create("other").ID)
	after := b.reopened()
	found, err := after.guard.Group(b.ctx(), group.ID, members(group))
	if err != nil || !found.Created.Equal(group.Created) {
		b.Fatalf("after reopening: %+v, %v; want %+v", found, err, group)
	}
}
