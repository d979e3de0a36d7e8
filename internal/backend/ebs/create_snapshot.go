package ebs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// CreateSnapshot of EC2 has no client token, and EC2 does not show a new snapshot at
// once. So a name that is not found may have a snapshot nevertheless, in three cases:
//
//   - This process sent the creation and lost the answer.
//   - An earlier process did so, and died.
//   - Another process does so now.
//
// In the first two cases the name is polled until EC2 must show its snapshot, before one
// is created. The third case needs two active controllers, which a lease prevents. In
// case both are active nevertheless, the name is looked up again after the creation, and
// the younger of two snapshots is deleted, because it was not returned yet. A snapshot
// that was returned is never deleted, because a CO may use it. Every lookup returns the
// oldest snapshot, so that all answers name the same one.

// pollNameEvery is the interval of lookups of a name that may have a snapshot.
const pollNameEvery = 500 * time.Millisecond

// perVolumeRate is the least time that EC2 requires between snapshots of one volume.
const perVolumeRate = 15 * time.Second

// snapshotNames records which names may have a snapshot that EC2 does not show.
type snapshotNames struct {
	once  sync.Once
	begun time.Time // when this process was first asked for a snapshot
	// uncertain names may have a snapshot that does not show until then.
	uncertain concurrency.Expiring[string, time.Time]
}

// uncertainUntil is until when a name may have a snapshot that EC2 does not show.
func (s *snapshotNames) uncertainUntil(name string, lag time.Duration) time.Time {
	s.once.Do(func() { s.begun = time.Now() })
	if own, ok := s.uncertain.Get(name); ok {
		return own
	}
	return s.begun.Add(lag)
}

// markUncertain records that a creation may have had its effect.
func (s *snapshotNames) markUncertain(name string, lag time.Duration) {
	s.uncertain.Set(name, time.Now().Add(lag), lag)
}

// CreateSnapshot creates a snapshot. The guard has found none with the name.
func (c *Controller) CreateSnapshot(ctx context.Context, spec backend.SnapshotSpec) (backend.Snapshot, error) {
	desired, in, err := c.planSnapshot(ctx, spec)
	if err != nil {
		return backend.Snapshot{}, err
	}
	snapshot, found, err := c.awaitName(ctx, spec.Name)
	if err == nil && !found {
		snapshot, err = c.sendCreateSnapshot(ctx, spec.Name, in)
	}
	if err != nil {
		return backend.Snapshot{}, err
	}
	if snapshot.VolumeID != spec.SourceID {
		return backend.Snapshot{}, fmt.Errorf("%w: snapshot %s has that name and was created from volume %s; use another name",
			backend.ErrExists, snapshot.ID, snapshot.VolumeID)
	}
	if err := checkSnapshot(snapshot); err != nil {
		return backend.Snapshot{}, err
	}
	noteUpload(ctx, snapshot)
	return toSnapshot(snapshot), c.finishSnapshot(ctx, snapshot.ID, desired)
}

func (c *Controller) planSnapshot(
	ctx context.Context, spec backend.SnapshotSpec,
) (params.Snapshot, cloud.CreateSnapshotInput, error) {
	desired, err := params.ParseSnapshot(spec.Parameters)
	if err != nil {
		return desired, cloud.CreateSnapshotInput{}, err
	}
	if !desired.Lock.Expires.IsZero() && !desired.Lock.Expires.After(time.Now()) {
		return desired, cloud.CreateSnapshotInput{}, fmt.Errorf("%w: lockExpirationDate %s is in the past",
			backend.ErrInvalid, desired.Lock.Expires.Format(time.RFC3339))
	}
	if err := c.checkZones(ctx, desired.FastRestoreZones); err != nil {
		return desired, cloud.CreateSnapshotInput{}, err
	}
	all, err := c.tags.Snapshot(spec.Name, desired.Tags, spec.Metadata)
	return desired, cloud.CreateSnapshotInput{
		VolumeID: spec.SourceID, OutpostARN: desired.OutpostARN, Tags: all,
		Description: "Snapshot of volume " + spec.SourceID + ", made by " + DriverName,
	}, err
}

// awaitName looks a name up until EC2 must show its snapshot.
func (c *Controller) awaitName(ctx context.Context, name string) (cloud.Snapshot, bool, error) {
	until := c.snapshotNames.uncertainUntil(name, c.lag)
	for time.Now().Before(until) {
		if err := concurrency.Sleep(ctx, min(pollNameEvery, time.Until(until))); err != nil {
			return cloud.Snapshot{}, false, err
		}
		if s, found, err := c.snapshotNamed(ctx, name); found || err != nil {
			return s, found, err
		}
	}
	return cloud.Snapshot{}, false, nil
}

// sendCreateSnapshot creates a snapshot. After a lost answer it looks the name up, and
// creates one only if EC2 shows none.
func (c *Controller) sendCreateSnapshot(
	ctx context.Context, name string, in cloud.CreateSnapshotInput,
) (cloud.Snapshot, error) {
	for {
		s, err := c.cloud.CreateSnapshot(ctx, in)
		if err == nil {
			return c.converge(ctx, name, s)
		}
		switch {
		case cloud.Uncertain(err):
			c.snapshotNames.markUncertain(name, c.lag)
			if ctx.Err() != nil {
				return cloud.Snapshot{}, err
			}
			if s, found, lookup := c.awaitName(ctx, name); found || lookup != nil {
				return s, lookup
			}
		case cloud.Code(err) == "SnapshotCreationPerVolumeRateExceeded" && hasTime(ctx, perVolumeRate):
			if err := concurrency.Sleep(ctx, perVolumeRate); err != nil {
				return cloud.Snapshot{}, err
			}
		default:
			return cloud.Snapshot{}, err
		}
	}
}

// hasTime reports whether a call's deadline leaves time for work after a wait.
func hasTime(ctx context.Context, wait time.Duration) bool {
	deadline, limited := ctx.Deadline()
	return !limited || time.Until(deadline) > wait+time.Second
}

// converge looks the name up after a creation. If EC2 shows an older snapshot of the
// name now, it deletes the new one, which was not returned yet.
func (c *Controller) converge(ctx context.Context, name string, made cloud.Snapshot) (cloud.Snapshot, error) {
	oldest, found, err := c.snapshotNamed(ctx, name)
	if err != nil || !found || oldest.ID == made.ID || !oldest.Started.Before(made.Started) {
		return made, nil //nolint:nilerr // the snapshot exists; this lookup is a precaution
	}
	c.log.InfoContext(ctx, "delete the younger of two snapshots with one name", "older", oldest.ID, "younger", made.ID)
	if err := c.cloud.DeleteSnapshot(ctx, made.ID); err != nil && !errors.Is(err, backend.ErrNotFound) {
		return cloud.Snapshot{}, fmt.Errorf("delete snapshot %s, the younger one of the name of %s: %w",
			made.ID, oldest.ID, err)
	}
	return oldest, nil
}
