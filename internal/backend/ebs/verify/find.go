package verify

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// Find records what runs made and did not remove, by their tags, so that the ledger removes
// it: the resources of one run, or of each run that chosen accepts if run is "".
func (s *Session) Find(ctx context.Context, run string, chosen func(run string) bool) error {
	volumes, err := s.Cloud.VolumesTagged(ctx, Tag, run)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if v.State != cloud.VolumeDeleting && v.State != cloud.VolumeDeleted && (run != "" || chosen(v.Tags[Tag])) {
			s.record(v.ID, time.Time{})
		}
	}
	snapshots, err := s.Cloud.SnapshotsTagged(ctx, Tag, run)
	for _, found := range snapshots {
		if run != "" || chosen(found.Tags[Tag]) {
			s.recordSnapshot(found.ID, time.Time{})
		}
	}
	return err
}

// noteAsked notes a creation that EC2 executed or may have executed. An answer with a code
// excludes that.
func (s *Session) noteAsked(ctx context.Context, err error) {
	if err == nil || cloud.Code(err) == "" || ctx.Err() != nil {
		s.asked = time.Now()
	}
}

// FindLost records what this run made without an answer that named it: EC2 may have executed
// a call that was interrupted, or whose answer was lost. It waits until EC2's describes must
// show the last of it.
func (s *Session) FindLost(ctx context.Context) error {
	if s.asked.IsZero() {
		return nil
	}
	if err := concurrency.Sleep(ctx, time.Until(s.asked.Add(Lag))); err != nil {
		return err
	}
	return s.Find(ctx, s.Run, nil)
}

// isGone reports whether the error of a deletion proves that the resource does not exist. A
// resource that was made less than the lag ago may only not be visible yet.
func isGone(err error, made time.Time) bool {
	return errors.Is(err, backend.ErrNotFound) && time.Since(made) > Lag
}
