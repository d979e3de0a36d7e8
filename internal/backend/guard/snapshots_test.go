package guard

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// snapshotting is a blocking controller with one snapshot and one group, whose
// deletions wait for a release.
type snapshotting struct {
	*blocking
	snapshot backend.Snapshot
	group    backend.GroupSnapshot
	damage   error // what Group answers, if set
	deleted  []string
}

func (c *snapshotting) CheckSnapshotParameters(map[string]string) error { return nil }
func (c *snapshotting) CheckGroupParameters(map[string]string) error    { return nil }

func (c *snapshotting) CreateSnapshot(context.Context, backend.SnapshotSpec) (backend.Snapshot, error) {
	return c.snapshot, nil
}

func (c *snapshotting) DeleteSnapshot(ctx context.Context, id string) error {
	c.deleted = append(c.deleted, id)
	return c.wait(ctx)
}

func (c *snapshotting) Snapshot(context.Context, string) (backend.Snapshot, error) {
	return c.snapshot, nil
}

func (c *snapshotting) SnapshotByName(context.Context, string) (backend.Snapshot, error) {
	return c.snapshot, nil
}

func (c *snapshotting) Snapshots(context.Context, backend.SnapshotFilter, string, int) ([]backend.Snapshot, error) {
	return nil, nil
}

func (c *snapshotting) CreateGroup(context.Context, backend.GroupSnapshotSpec) (backend.GroupSnapshot, error) {
	return c.group, nil
}

func (c *snapshotting) DeleteGroup(ctx context.Context, id string) error {
	c.deleted = append(c.deleted, id)
	return c.wait(ctx)
}

func (c *snapshotting) Group(context.Context, string) (backend.GroupSnapshot, error) {
	if c.damage != nil {
		return backend.GroupSnapshot{}, c.damage
	}
	return c.group, nil
}

func (c *snapshotting) GroupByName(context.Context, string) (backend.GroupSnapshot, error) {
	return c.group, nil
}

func newCutter() *snapshotting {
	snapshot := backend.Snapshot{ID: "snap-s", Name: "s", SourceID: "id-a"}
	return &snapshotting{
		blocking: newBlocking(), snapshot: snapshot,
		group: backend.GroupSnapshot{ID: "grp-g", Name: "g", Snapshots: []backend.Snapshot{{ID: "snap-m", SourceID: "id-a"}}},
	}
}

func TestDeleteSnapshot_excludesCreationOfItsName(t *testing.T) {
	controller := newCutter()
	g := New(controller)
	finish := controller.inFlight(t, func() error { return g.DeleteSnapshot(t.Context(), "snap-s") })
	_, err := g.CreateSnapshot(t.Context(), backend.SnapshotSpec{Name: "s", SourceID: "id-a"})
	if !errors.Is(err, backend.ErrBusy) {
		t.Errorf("creating a name while its snapshot is deleted: %v; want ErrBusy", err)
	}
	finish()
}

func TestDeleteGroup_excludesCreationOfItsName(t *testing.T) {
	controller := newCutter()
	g := New(controller)
	finish := controller.inFlight(t, func() error { return g.DeleteGroup(t.Context(), "grp-g", nil) })
	_, err := g.CreateGroup(t.Context(), backend.GroupSnapshotSpec{Name: "g", SourceIDs: []string{"id-a"}})
	if !errors.Is(err, backend.ErrBusy) {
		t.Errorf("creating a name while its group is deleted: %v; want ErrBusy", err)
	}
	finish()
}

func TestDeleteGroup_removesOneThatLacksAMember(t *testing.T) {
	controller := newCutter()
	controller.damage = backend.ErrDataLoss
	g := New(controller)
	controller.inFlight(t, func() error { return g.DeleteGroup(t.Context(), "grp-g", []string{"snap-m"}) })()
	if len(controller.deleted) != 1 {
		t.Errorf("deleted %v; want the group", controller.deleted)
	}
}

func TestDeleteGroup_refusesOtherMembers(t *testing.T) {
	controller := newCutter()
	err := New(controller).DeleteGroup(t.Context(), "grp-g", []string{"snap-other"})
	if !errors.Is(err, backend.ErrInvalid) || len(controller.deleted) != 0 {
		t.Errorf("got %v, deleted %v; want ErrInvalid and nothing", err, controller.deleted)
	}
}
