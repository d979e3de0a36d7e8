package ebs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// CreateSnapshot has no client token, and EC2 does not show at once what it
// made. So a name that is not found may have a snapshot all the same, in three
// cases: this process sent the creation and lost the answer; a process before
// this one did, and died; another process does so now. In the first two the name
// is looked for until EC2 must show what there is, before anything is made. The
// third needs two controllers that both act, which a lease excludes; for what is
// left of it, a second look follows the creation, and the younger of two, of
// which nobody was told yet, is deleted. A snapshot that was ever returned is
// never deleted here: a CO may hold it. Whoever looks takes the oldest, so that
// all answers from then on name the same one.

// lookAgain is how often a name is looked for that may have a snapshot.
const lookAgain = 500 * time.Millisecond

// perVolumeRate is how far apart EC2 wants the snapshots of one volume.
const perVolumeRate = 15 * time.Second

// cuts remembers what is not certain about names of snapshots.
type cuts struct {
	mu sync.Mutex
	// begun is when this process was first asked for a snapshot.
	begun time.Time
	// uncertain names may have a snapshot that does not show until then.
	uncertain map[string]time.Time
	// finished are snapshots after whose cut nothing is left to do, until then.
	finished map[string]time.Time
}

// doubt tells until when a name may have a snapshot that does not show.
func (s *cuts) doubt(name string, lag time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun.IsZero() {
		s.begun = time.Now()
	}
	until := s.begun.Add(lag)
	if own := s.uncertain[name]; own.After(until) {
		return own
	}
	return until
}

// suspect notes that a creation may have had its effect.
func (s *cuts) suspect(name string, lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uncertain = noted(s.uncertain, name, lag)
}

// finishedLifetime is how long it is remembered that a snapshot is finished.
const finishedLifetime = time.Hour

func (s *cuts) finish(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = noted(s.finished, id, finishedLifetime)
}

func (s *cuts) isFinished(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.finished[id])
}

// noted adds a key that holds for a while, and drops those that hold no more.
func noted(m map[string]time.Time, key string, lifetime time.Duration) map[string]time.Time {
	now := time.Now()
	maps.DeleteFunc(m, func(_ string, until time.Time) bool { return !now.Before(until) })
	if m == nil {
		m = map[string]time.Time{}
	}
	m[key] = now.Add(lifetime)
	return m
}

// CreateSnapshot cuts a snapshot. The guard has found none of the name.
func (c *Controller) CreateSnapshot(ctx context.Context, spec backend.SnapshotSpec) (backend.Snapshot, error) {
	desired, in, err := c.planSnapshot(ctx, spec)
	if err != nil {
		return backend.Snapshot{}, err
	}
	cut, found, err := c.outwait(ctx, spec.Name)
	if err == nil && !found {
		cut, err = c.cut(ctx, spec.Name, in)
	}
	if err != nil {
		return backend.Snapshot{}, err
	}
	if cut.VolumeID != spec.SourceID {
		return backend.Snapshot{}, fmt.Errorf("%w: snapshot %s has that name and was cut from %s; use another name", backend.ErrExists, cut.ID, cut.VolumeID)
	}
	if err := checkCut(cut); err != nil {
		return backend.Snapshot{}, err
	}
	return toSnapshot(cut), c.finishCut(ctx, cut.ID, desired)
}

func (c *Controller) planSnapshot(ctx context.Context, spec backend.SnapshotSpec) (params.Snapshot, cloud.CreateSnapshotInput, error) {
	desired, err := params.ParseSnapshot(spec.Parameters)
	if err != nil {
		return desired, cloud.CreateSnapshotInput{}, err
	}
	if !desired.Lock.Expires.IsZero() && !desired.Lock.Expires.After(time.Now()) {
		return desired, cloud.CreateSnapshotInput{}, fmt.Errorf("%w: lockExpirationDate %s is over", backend.ErrInvalid, desired.Lock.Expires.Format(time.RFC3339))
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

// outwait looks for a name until EC2 must show what it has.
func (c *Controller) outwait(ctx context.Context, name string) (cloud.Snapshot, bool, error) {
	until := c.cuts.doubt(name, c.lag)
	for time.Now().Before(until) {
		if err := concurrency.Sleep(ctx, min(lookAgain, time.Until(until))); err != nil {
			return cloud.Snapshot{}, false, err
		}
		if s, found, err := c.snapshotNamed(ctx, name); found || err != nil {
			return s, found, err
		}
	}
	return cloud.Snapshot{}, false, nil
}

// cut makes a snapshot, once: a lost answer is followed by looking.
func (c *Controller) cut(ctx context.Context, name string, in cloud.CreateSnapshotInput) (cloud.Snapshot, error) {
	for {
		s, err := c.cloud.CreateSnapshot(ctx, in)
		if err == nil {
			return c.converge(ctx, name, s)
		}
		switch {
		case uncertain(err):
			c.cuts.suspect(name, c.lag)
			if ctx.Err() != nil {
				return cloud.Snapshot{}, err
			}
			if s, found, lookup := c.outwait(ctx, name); found || lookup != nil {
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

// uncertain reports whether a call may have had its effect though it failed.
func uncertain(err error) bool {
	var e *cloud.Error
	return errors.As(err, &e) && e.Uncertain
}

// hasTime reports whether a call can wait and still do something.
func hasTime(ctx context.Context, wait time.Duration) bool {
	deadline, limited := ctx.Deadline()
	return !limited || time.Until(deadline) > wait+time.Second
}

// converge looks once more after a creation: where an older snapshot of the
// name shows now, the one just made goes, as nobody was told of it.
func (c *Controller) converge(ctx context.Context, name string, made cloud.Snapshot) (cloud.Snapshot, error) {
	oldest, found, err := c.snapshotNamed(ctx, name)
	if err != nil || !found || oldest.ID == made.ID || !oldest.Started.Before(made.Started) {
		return made, nil //nolint:nilerr // the snapshot is made, and the look a precaution
	}
	c.log.InfoContext(ctx, "delete the younger of two snapshots with one name", "older", oldest.ID, "younger", made.ID)
	if err := c.cloud.DeleteSnapshot(ctx, made.ID); err != nil && !errors.Is(err, backend.ErrNotFound) {
		return cloud.Snapshot{}, fmt.Errorf("delete snapshot %s, made beside the older %s of the same name: %w", made.ID, oldest.ID, err)
	}
	return oldest, nil
}
