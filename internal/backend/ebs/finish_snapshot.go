package ebs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
)

// FinishSnapshot enables fast restore and locks the snapshot if its creation ended
// before that.
func (c *Controller) FinishSnapshot(ctx context.Context, snapshot backend.Snapshot, spec backend.SnapshotSpec) (backend.Snapshot, error) {
	desired, err := params.ParseSnapshot(spec.Parameters)
	if err != nil {
		return backend.Snapshot{}, err
	}
	return snapshot, c.finishSnapshot(ctx, snapshot.ID, desired)
}

// finishSnapshot enables fast restore and locks the snapshot. If one of them fails, the
// snapshot is kept, since its instant cannot be repeated, and the call fails with a code
// that lets the CO repeat it. After a success the CO would take an unlocked snapshot for
// a locked one; after a final error it would forget the snapshot and leak it.
func (c *Controller) finishSnapshot(ctx context.Context, id string, desired params.Snapshot) error {
	if c.snapshotNames.isFinished(id) {
		return nil
	}
	for _, step := range []struct {
		name string
		do   func(context.Context, string, params.Snapshot) error
	}{{"enable fast snapshot restore", c.ensureFastRestore}, {"lock it", c.ensureLock}} {
		if err := step.do(ctx, id, desired); err != nil {
			return unfinished(id, step.name, err)
		}
	}
	c.snapshotNames.finish(id)
	return nil
}

// unfinished makes an error that is not final for the creation. It includes the reason
// as text only, since the reason's code may be final.
func unfinished(id, step string, reason error) error {
	code := backend.ErrUnavailable
	if errors.Is(reason, backend.ErrNoSpace) {
		code = backend.ErrNoSpace
	}
	return fmt.Errorf("%w: snapshot %s was created and is kept, but a step after its creation failed (%s) and is retried: %s", code, id, step, reason.Error())
}

func (c *Controller) ensureFastRestore(ctx context.Context, id string, desired params.Snapshot) error {
	missing := slices.Clone(desired.FastRestoreZones)
	if len(missing) == 0 {
		return nil
	}
	have, err := c.cloud.FastRestores(ctx, id)
	switch {
	case errors.Is(err, backend.ErrDenied):
		// Enabling what is enabled is harmless.
		c.log.WarnContext(ctx, "the role may not call DescribeFastSnapshotRestores; fast restore is enabled without that check", "snapshot", id)
	case err != nil:
		return err
	}
	missing = slices.DeleteFunc(missing, func(zone string) bool {
		return slices.ContainsFunc(have, func(f cloud.FastRestore) bool {
			return f.Zone == zone && f.State != "disabling" && f.State != "disabled"
		})
	})
	if len(missing) == 0 {
		return nil
	}
	return c.cloud.EnableFastRestore(ctx, id, missing)
}

func (c *Controller) ensureLock(ctx context.Context, id string, desired params.Snapshot) error {
	if desired.Lock == (params.Lock{}) {
		return nil
	}
	lock, locked, err := c.cloud.LockOf(ctx, id)
	switch {
	case errors.Is(err, backend.ErrDenied):
		// Locking again what is locked renews the lock for as long: no less than asked.
		c.log.WarnContext(ctx, "the role may not call DescribeLockedSnapshots; the snapshot is locked without that check", "snapshot", id)
	case err != nil:
		return err
	case locked && lock.State != "expired":
		return nil
	}
	_, err = c.cloud.LockSnapshot(ctx, cloud.LockInput{
		SnapshotID: id, Mode: desired.Lock.Mode, Duration: desired.Lock.Days, Expires: desired.Lock.Expires, CoolOff: desired.Lock.CoolOff,
	})
	return err
}
