package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// CreateGroup takes snapshots of several volumes at one instant, or returns the group
// that an earlier call with the same name, sources and parameters made.
func (g *Guard) CreateGroup(ctx context.Context, spec backend.GroupSnapshotSpec) (backend.GroupSnapshot, error) {
	grouper, err := feature[backend.GroupSnapshotter](g, "group snapshots")
	if err != nil {
		return backend.GroupSnapshot{}, err
	}
	// The order of the sources means nothing, and a source named twice is one.
	spec.SourceIDs = slices.Compact(slices.Sorted(slices.Values(spec.SourceIDs)))
	if err := checkGroup(grouper, spec); err != nil {
		return backend.GroupSnapshot{}, fmt.Errorf("create group snapshot %q: %w", spec.Name, err)
	}
	unlock, err := g.lock("group snapshot "+spec.Name, groupName(spec.Name))
	if err != nil {
		return backend.GroupSnapshot{}, err
	}
	defer unlock()
	group, err := g.findOrCreateGroup(ctx, grouper, spec)
	if err != nil {
		return backend.GroupSnapshot{}, fmt.Errorf("create group snapshot %q: %w", spec.Name, err)
	}
	return group, nil
}

func checkGroup(grouper backend.GroupSnapshotter, spec backend.GroupSnapshotSpec) error {
	switch {
	case spec.Name == "":
		return fmt.Errorf("%w: name is empty", backend.ErrInvalid)
	case len(spec.SourceIDs) == 0:
		return fmt.Errorf("%w: source_volume_ids is empty; name at least one volume", backend.ErrInvalid)
	case slices.Contains(spec.SourceIDs, ""):
		return fmt.Errorf("%w: source_volume_ids has an empty ID", backend.ErrInvalid)
	}
	return grouper.CheckGroupParameters(spec.Parameters)
}

func (g *Guard) findOrCreateGroup(
	ctx context.Context, grouper backend.GroupSnapshotter, spec backend.GroupSnapshotSpec,
) (backend.GroupSnapshot, error) {
	existing, err := grouper.GroupByName(ctx, spec.Name)
	switch {
	case err == nil:
		return existing, compatibleGroup(existing, spec)
	case !errors.Is(err, backend.ErrNotFound):
		return backend.GroupSnapshot{}, err
	}
	keys := make([]string, len(spec.SourceIDs))
	for i, id := range spec.SourceIDs {
		keys[i] = volumeID(id)
	}
	unlock, err := g.lock("one of the source volumes", keys...)
	if err != nil {
		return backend.GroupSnapshot{}, err
	}
	defer unlock()
	for _, id := range spec.SourceIDs {
		if _, err := g.controller.Volume(ctx, id); err != nil {
			return backend.GroupSnapshot{}, fmt.Errorf("source volume: %w", err)
		}
	}
	return grouper.CreateGroup(ctx, spec)
}

func compatibleGroup(have backend.GroupSnapshot, spec backend.GroupSnapshotSpec) error {
	sources := make([]string, len(have.Snapshots))
	for i, snapshot := range have.Snapshots {
		sources[i] = snapshot.SourceID
	}
	slices.Sort(sources)
	if !slices.Equal(sources, spec.SourceIDs) {
		return fmt.Errorf("%w: group snapshot %s has that name and the sources %v, not %v; use another name",
			backend.ErrExists, have.ID, sources, spec.SourceIDs)
	}
	if !maps.Equal(have.Parameters, spec.Parameters) {
		return fmt.Errorf("%w: group snapshot %s has that name with parameters %v, the request has %v; use another name",
			backend.ErrExists, have.ID, have.Parameters, spec.Parameters)
	}
	return nil
}

// DeleteGroup removes a group with its snapshots; one that is not there is
// done. snapshotIDs, when given, must be the members (ErrInvalid otherwise).
func (g *Guard) DeleteGroup(ctx context.Context, id string, snapshotIDs []string) error {
	grouper, err := feature[backend.GroupSnapshotter](g, "group snapshots")
	if err != nil {
		return err
	}
	unlock, err := g.lock("group snapshot "+id, groupID(id))
	if err != nil {
		return err
	}
	defer unlock()
	group, err := grouper.Group(ctx, id)
	switch {
	case errors.Is(err, backend.ErrNotFound) && !g.traits.LagsBehind:
		return nil
	case errors.Is(err, backend.ErrNotFound):
		return deleteGroup(ctx, grouper, id)
	case errors.Is(err, backend.ErrDataLoss):
		// Not all of its members are known, so they are not compared. A damaged group
		// must be deletable; the backend finds its remaining members.
		return deleteGroup(ctx, grouper, id)
	case err == nil:
		err = checkMembers(group, snapshotIDs)
	}
	if err != nil {
		return fmt.Errorf("delete group snapshot %s: %w", id, err)
	}
	unlockMembers, err := g.lockGroup(group)
	if err != nil {
		return err
	}
	defer unlockMembers()
	return deleteGroup(ctx, grouper, id)
}

func deleteGroup(ctx context.Context, grouper backend.GroupSnapshotter, id string) error {
	if err := grouper.DeleteGroup(ctx, id); err != nil && !errors.Is(err, backend.ErrNotFound) {
		return fmt.Errorf("delete group snapshot %s: %w", id, err)
	}
	return nil
}

// lockGroup locks a group's name and its members against other calls.
func (g *Guard) lockGroup(group backend.GroupSnapshot) (func(), error) {
	keys := []string{groupName(group.Name)}
	for _, snapshot := range group.Snapshots {
		keys = append(keys, snapshotID(snapshot.ID))
	}
	return g.lock("group snapshot "+group.Name+" or one of its snapshots", keys...)
}

// Group finds a group by ID; ErrNotFound. snapshotIDs as in DeleteGroup.
func (g *Guard) Group(ctx context.Context, id string, snapshotIDs []string) (backend.GroupSnapshot, error) {
	grouper, err := feature[backend.GroupSnapshotter](g, "group snapshots")
	if err != nil {
		return backend.GroupSnapshot{}, err
	}
	group, err := grouper.Group(ctx, id)
	if err != nil {
		return backend.GroupSnapshot{}, err
	}
	return group, checkMembers(group, snapshotIDs)
}

func checkMembers(group backend.GroupSnapshot, snapshotIDs []string) error {
	if len(snapshotIDs) == 0 {
		return nil
	}
	members := make([]string, len(group.Snapshots))
	for i, snapshot := range group.Snapshots {
		members[i] = snapshot.ID
	}
	if !maps.Equal(set(members), set(snapshotIDs)) {
		return fmt.Errorf("%w: snapshot_ids %v are not the members of group snapshot %s, which are %v",
			backend.ErrInvalid, snapshotIDs, group.ID, members)
	}
	return nil
}

func set(ids []string) map[string]bool {
	in := make(map[string]bool, len(ids))
	for _, id := range ids {
		in[id] = true
	}
	return in
}
