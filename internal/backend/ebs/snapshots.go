package ebs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// CheckSnapshotParameters rejects unknown keys and invalid values.
func (c *Controller) CheckSnapshotParameters(parameters map[string]string) error {
	desired, err := params.ParseSnapshot(parameters)
	if err != nil {
		return err
	}
	return c.tags.CheckSnapshot(desired.Tags)
}

// Snapshot finds a snapshot by ID; ErrNotFound.
func (c *Controller) Snapshot(ctx context.Context, id string) (backend.Snapshot, error) {
	if !snapshotID.MatchString(id) {
		return backend.Snapshot{}, fmt.Errorf("%w: %q is not an EBS snapshot ID (snap- and 8 or 17 hexadecimal digits)",
			backend.ErrNotFound, id)
	}
	s, err := c.cloud.Snapshot(ctx, id)
	if err != nil {
		return backend.Snapshot{}, err
	}
	noteUpload(ctx, s)
	return toSnapshot(s), nil
}

// SnapshotByName finds the oldest snapshot of a name; ErrNotFound.
func (c *Controller) SnapshotByName(ctx context.Context, name string) (backend.Snapshot, error) {
	s, found, err := c.snapshotNamed(ctx, name)
	if err != nil {
		return backend.Snapshot{}, err
	}
	if !found {
		return backend.Snapshot{}, fmt.Errorf("%w: no snapshot has the name %q", backend.ErrNotFound, name)
	}
	noteUpload(ctx, s)
	return toSnapshot(s), checkSnapshot(s)
}

// snapshotNamed is the oldest snapshot of a name, so that every lookup returns the same
// one of two.
func (c *Controller) snapshotNamed(ctx context.Context, name string) (cloud.Snapshot, bool, error) {
	named, err := c.cloud.SnapshotsNamed(ctx, name)
	if err != nil {
		return cloud.Snapshot{}, false, fmt.Errorf("look up the snapshot by its name: %w", err)
	}
	if len(named) == 0 {
		return cloud.Snapshot{}, false, nil
	}
	return named[0], true, nil
}

// checkSnapshot refuses a snapshot that failed in EC2.
func checkSnapshot(s cloud.Snapshot) error {
	if s.State != cloud.SnapshotError {
		return nil
	}
	return fmt.Errorf("snapshot %s failed in EC2 (%s); delete it and take another, and if its volume is encrypted make sure that the driver's role may use the key",
		s.ID, s.Message)
}

// noteUpload reports how far EC2 is with the upload of a snapshot. That goes on after the
// call, which callers repeat until the snapshot is ready.
func noteUpload(ctx context.Context, s cloud.Snapshot) {
	percent, err := strconv.ParseInt(strings.TrimSuffix(s.Progress, "%"), 10, 64)
	if s.State != cloud.SnapshotPending || err != nil { // EC2 may leave the field out
		progress.Forget(ctx, s.ID)
		return
	}
	progress.Note(ctx, s.ID, "uploading", percent)
}

func toSnapshot(s cloud.Snapshot) backend.Snapshot {
	return backend.Snapshot{
		ID: s.ID, Name: s.Tags[tags.SnapshotName], SourceID: s.VolumeID,
		Size: int64(s.Size) * gib, Created: s.Started, Ready: s.State == cloud.SnapshotCompleted,
	}
}

// Snapshots lists the account's snapshots that a driver created. With an ID, it also
// finds a snapshot of another program.
func (c *Controller) Snapshots(
	ctx context.Context, filter backend.SnapshotFilter, after string, limit int,
) ([]backend.Snapshot, error) {
	if filter.SnapshotID != "" {
		return c.oneSnapshot(ctx, filter, after)
	}
	if filter.SourceID != "" && !volumeID.MatchString(filter.SourceID) {
		return nil, nil
	}
	all, err := c.snapshots.page(filter.SourceID, after, limit, func(s cloud.Snapshot) string { return s.ID },
		func() ([]cloud.Snapshot, error) { return c.cloud.ListSnapshots(ctx, filter.SourceID) })
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	snapshots := make([]backend.Snapshot, len(all))
	for i, s := range all {
		snapshots[i] = toSnapshot(s)
	}
	return snapshots, nil
}

func (c *Controller) oneSnapshot(
	ctx context.Context, filter backend.SnapshotFilter, after string,
) ([]backend.Snapshot, error) {
	s, err := c.Snapshot(ctx, filter.SnapshotID)
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case s.ID <= after, filter.SourceID != "" && s.SourceID != filter.SourceID:
		return nil, nil
	}
	return []backend.Snapshot{s}, nil
}

// DeleteSnapshot deletes a snapshot; ErrPrecondition if it is locked, ErrInUse if a
// machine image uses it.
func (c *Controller) DeleteSnapshot(ctx context.Context, id string) error {
	if !snapshotID.MatchString(id) {
		return fmt.Errorf("%w: %q is not an EBS snapshot ID", backend.ErrNotFound, id)
	}
	err := c.cloud.DeleteSnapshot(ctx, id)
	if err == nil || errors.Is(err, backend.ErrNotFound) {
		progress.Forget(ctx, id)
		return err
	}
	if cloud.Code(err) == "InvalidSnapshot.InUse" {
		return fmt.Errorf("snapshot %s is used by a machine image (AMI); deregister that first: %w", id, err)
	}
	// EC2 documents no code for a locked snapshot, so the lock is described.
	lock, locked, lookup := c.cloud.LockOf(ctx, id)
	if lookup != nil || !locked || lock.State == "expired" {
		return err
	}
	until := "it is unlocked"
	if !lock.Expires.IsZero() {
		until = lock.Expires.UTC().Format(time.RFC3339)
	}
	return fmt.Errorf("%w: snapshot %s is locked (%s) until %s: %s",
		backend.ErrPrecondition, id, lock.State, until, err.Error())
}

// checkZones rejects zones that the region does not have.
func (c *Controller) checkZones(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	zones, err := c.cloud.Zones(ctx)
	if err != nil {
		return fmt.Errorf("look up the zones of fastSnapshotRestoreAvailabilityZones: %w", err)
	}
	for _, name := range names {
		if !slices.ContainsFunc(zones, func(z cloud.Zone) bool { return z.Name == name }) {
			return fmt.Errorf("%w: fastSnapshotRestoreAvailabilityZones: the region has no zone %q",
				backend.ErrInvalid, name)
		}
	}
	return nil
}
