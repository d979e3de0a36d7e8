package ebs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
)

// finishedLifetime is how long the driver remembers that it finished a snapshot.
const finishedLifetime = time.Hour

// FinishSnapshot enables fast restore and locks the snapshot if its creation ended
// before that.
func (c *Controller) FinishSnapshot(
	ctx context.Context, snapshot backend.Snapshot, spec backend.SnapshotSpec,
) (backend.Snapshot, error) {
	desired, err := params.ParseSnapshot(spec.Parameters)
	if err != nil {
		return backend.Snapshot{}, err
	}
	return snapshot, c.finishSnapshot(ctx, snapshot.ID, desired)
}

// finishSnapshot enables fast restore and locks the snapshot. If one of them fails, the
// snapshot is kept, because its point in time cannot be repeated, and the call fails with
// a code after which the CO repeats it. After a success the CO would treat an unlocked
// snapshot as locked; after a final error it would drop the snapshot, which would leak.
func (c *Controller) finishSnapshot(ctx context.Context, id string, desired params.Snapshot) error {
	if finished, _ := c.finished.Get(id); finished {
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
	c.finished.Set(id, true, finishedLifetime)
	return nil
}

// unfinished makes an error that is not final for the creation. It includes the reason as
// text only, because the reason's code may be final.
func unfinished(id, step string, reason error) error {
	code := backend.ErrUnavailable
	if errors.Is(reason, backend.ErrNoSpace) {
		code = backend.ErrNoSpace
	}
	return fmt.Errorf("%w: snapshot %s was created and is kept, but a step after its creation failed (%s) and is retried: %s",
		code, id, step, reason.Error())
}

func (c *Controller) ensureFastRestore(ctx context.Context, id string, desired params.Snapshot) error {
	missing := slices.Clone(desired.FastRestoreZones)
	if len(missing) == 0 {
		return nil
	}
	have, err := c.cloud.FastRestores(ctx, id)
	switch {
	case errors.Is(err, backend.ErrDenied):
		// Enabling fast restore again has no effect.
		c.log.WarnContext(ctx,
			"the role may not call DescribeFastSnapshotRestores; fast restore is enabled without that check",
			"snapshot", id)
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
		// Locking again renews the lock, which so lasts at least as long as requested.
		c.log.WarnContext(ctx,
			"the role may not call DescribeLockedSnapshots; the snapshot is locked without that check",
			"snapshot", id)
	case err != nil:
		return err
	case locked && lock.State != "expired":
		return nil
	}
	return c.cloud.LockSnapshot(ctx, cloud.LockInput{
		SnapshotID: id, Mode: desired.Lock.Mode, Duration: desired.Lock.Days,
		Expires: desired.Lock.Expires, CoolOff: desired.Lock.CoolOff,
	})
}
