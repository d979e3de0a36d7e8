package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// CreateSnapshot takes a snapshot of a volume, or returns the one that an earlier
// call with the same name and source made. The same name for another source or a
// topology where it cannot be used is ErrExists.
func (g *Guard) CreateSnapshot(ctx context.Context, spec backend.SnapshotSpec) (backend.Snapshot, error) {
	snapshotter, err := feature[backend.Snapshotter](g, "snapshots")
	if err != nil {
		return backend.Snapshot{}, err
	}
	if err := checkSnapshot(snapshotter, spec); err != nil {
		return backend.Snapshot{}, fmt.Errorf("create snapshot %q: %w", spec.Name, err)
	}
	unlock, err := g.lock("snapshot "+spec.Name, snapshotName(spec.Name))
	if err != nil {
		return backend.Snapshot{}, err
	}
	defer unlock()
	snapshot, err := g.findOrCreateSnapshot(ctx, snapshotter, spec)
	if err != nil {
		return backend.Snapshot{}, fmt.Errorf("create snapshot %q: %w", spec.Name, err)
	}
	return snapshot, nil
}

func checkSnapshot(snapshotter backend.Snapshotter, spec backend.SnapshotSpec) error {
	switch {
	case spec.Name == "":
		return fmt.Errorf("%w: name is empty", backend.ErrInvalid)
	case spec.SourceID == "":
		return fmt.Errorf("%w: source_volume_id is empty", backend.ErrInvalid)
	}
	return snapshotter.CheckSnapshotParameters(spec.Parameters)
}

func (g *Guard) findOrCreateSnapshot(
	ctx context.Context, snapshotter backend.Snapshotter, spec backend.SnapshotSpec,
) (backend.Snapshot, error) {
	existing, err := snapshotter.SnapshotByName(ctx, spec.Name)
	switch {
	case err == nil && existing.SourceID != spec.SourceID:
		return backend.Snapshot{}, fmt.Errorf("%w: snapshot %s has that name and the source %s, not %s; use another name",
			backend.ErrExists, existing.ID, existing.SourceID, spec.SourceID)
	case err == nil && !accessible(existing.Topology, spec.Topology):
		return backend.Snapshot{}, fmt.Errorf("%w: snapshot %s has that name and the topology %v, and the request has %v; use another name",
			backend.ErrExists, existing.ID, existing.Topology, spec.Topology.Requisite)
	case err == nil:
		return finish(ctx, snapshotter, existing, spec)
	case !errors.Is(err, backend.ErrNotFound):
		return backend.Snapshot{}, err
	}
	// Usually one snapshot of a volume at a time: a second would thaw the filesystem
	// during the first.
	unlock, err := g.lockVolume(g.traits.ConcurrentSnapshots, spec.SourceID)
	if err != nil {
		return backend.Snapshot{}, err
	}
	defer unlock()
	if _, err := g.controller.Volume(ctx, spec.SourceID); err != nil {
		return backend.Snapshot{}, fmt.Errorf("source volume: %w", err)
	}
	return snapshotter.CreateSnapshot(ctx, spec)
}

// finish completes the steps that an interrupted creation may have omitted.
func finish(
	ctx context.Context, snapshotter backend.Snapshotter, existing backend.Snapshot, spec backend.SnapshotSpec,
) (backend.Snapshot, error) {
	finisher, ok := snapshotter.(backend.SnapshotFinisher)
	if !ok {
		return existing, nil
	}
	return finisher.FinishSnapshot(ctx, existing, spec)
}

// DeleteSnapshot removes a snapshot; a missing one is a success. A member of a group
// is deleted only with its group (CSI spec 1.13, DeleteSnapshot).
func (g *Guard) DeleteSnapshot(ctx context.Context, id string) error {
	snapshotter, err := feature[backend.Snapshotter](g, "snapshots")
	if err != nil {
		return err
	}
	unlock, err := g.lock("snapshot "+id, snapshotID(id))
	if err != nil {
		return err
	}
	defer unlock()
	snapshot, err := snapshotter.Snapshot(ctx, id)
	switch {
	case errors.Is(err, backend.ErrNotFound) && !g.traits.LagsBehind:
		return nil
	case err == nil && snapshot.GroupID != "":
		return fmt.Errorf("%w: snapshot %s belongs to group snapshot %s; delete the group", backend.ErrInvalid,
			id, snapshot.GroupID)
	case err == nil:
		// A creation of its name would find it and return a snapshot that is being deleted.
		unlockName, err := g.lock("snapshot "+snapshot.Name, snapshotName(snapshot.Name))
		if err != nil {
			return err
		}
		defer unlockName()
	case !errors.Is(err, backend.ErrNotFound):
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	if err := snapshotter.DeleteSnapshot(ctx, id); err != nil && !errors.Is(err, backend.ErrNotFound) {
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	return nil
}

// Snapshot finds a snapshot by ID; ErrNotFound.
func (g *Guard) Snapshot(ctx context.Context, id string) (backend.Snapshot, error) {
	snapshotter, err := feature[backend.Snapshotter](g, "snapshots")
	if err != nil {
		return backend.Snapshot{}, err
	}
	return snapshotter.Snapshot(ctx, id)
}

// Snapshots lists a page of at most maximum snapshots (0: all) and the token
// of the next one.
func (g *Guard) Snapshots(
	ctx context.Context, filter backend.SnapshotFilter, token string, maximum int,
) ([]backend.Snapshot, string, error) {
	snapshotter, err := feature[backend.Snapshotter](g, "snapshots")
	if err != nil {
		return nil, "", err
	}
	return page(token, maximum,
		func(after string, limit int) ([]backend.Snapshot, error) {
			return snapshotter.Snapshots(ctx, filter, after, limit)
		},
		func(s backend.Snapshot) string { return s.ID })
}
