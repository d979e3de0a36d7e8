package verify

import (
	"context"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/verify"
)

// snapshots are the checks of CreateSnapshot.
func (s *Session) snapshots() []verify.Check {
	return []verify.Check{
		check("ec2-snapshot", "CreateSnapshot answers at once with the ID, the volume's size and a start time, pending or completed",
			"EC2 API reference, CreateSnapshot", "a snapshot has no time, or is taken twice", s.takeSnapshot),
		check("ec2-snapshot-visible-by-name", "a describe shows a new snapshot by its tag CSIVolumeSnapshotName within 10 s", eventual,
			"a lost answer makes a second snapshot", s.snapshotVisible),
		check("ec2-snapshot-again", "a second snapshot of the volume within 15 s is made or refused with SnapshotCreationPerVolumeRateExceeded or ConcurrentSnapshotLimitExceeded",
			errorCodes, "a snapshot that has to wait is an internal error", s.snapshotAgain),
		check("ec2-snapshot-delete", "a snapshot can be deleted, also while it is pending", "EBS user guide, Delete an EBS snapshot",
			"the deletion of a fresh snapshot fails until it is complete", s.deleteSnapshot),
	}
}

func (s *Session) snapshotRequest(step string) cloud.CreateSnapshotInput {
	return cloud.CreateSnapshotInput{
		VolumeID: s.volume.ID, Description: "holdfast verify",
		Tags: map[string]string{Tag: s.Run, cloud.SnapshotNameTag: s.token(step)},
	}
}

// snap creates a snapshot and records it.
func (s *Session) snap(ctx context.Context, step string) (cloud.Snapshot, error) {
	taken, err := s.Cloud.CreateSnapshot(ctx, s.snapshotRequest(step))
	s.noteAsked(ctx, err)
	if err == nil {
		s.recordSnapshot(taken.ID, time.Now())
	}
	return taken, err
}

// recordSnapshot records a snapshot and when it was made; zero for long ago.
func (s *Session) recordSnapshot(id string, made time.Time) {
	s.Ledger.Add("snapshot", id, "aws ec2 delete-snapshot --snapshot-id "+id, func(ctx context.Context) error {
		_, err := within(ctx, transition, func(ctx context.Context) (bool, error) {
			err := s.Cloud.DeleteSnapshot(ctx, id)
			return err == nil || isGone(err, made), ignoreMissing(err)
		})
		return err
	})
}

func (s *Session) takeSnapshot(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	taken, err := s.snap(ctx, "snapshot")
	if err != nil {
		return failed(err)
	}
	s.snapshot = taken
	switch {
	case taken.State != cloud.SnapshotPending && taken.State != cloud.SnapshotCompleted:
		return verify.Differed("state %q", taken.State)
	case taken.Size < 1 || taken.Started.IsZero():
		return verify.Differed("%d GiB, started at %v", taken.Size, taken.Started)
	}
	return verify.Held("%s, %d GiB", taken.State, taken.Size)
}

func (s *Session) snapshotVisible(ctx context.Context) verify.Result {
	if s.snapshot.ID == "" {
		return verify.Skipped("its snapshot was not made")
	}
	return appears(ctx, func(ctx context.Context) (bool, error) {
		found, err := s.Cloud.SnapshotsNamed(ctx, s.token("snapshot"))
		return len(found) == 1 && found[0].ID == s.snapshot.ID, err
	})
}

func (s *Session) snapshotAgain(ctx context.Context) verify.Result {
	if s.snapshot.ID == "" {
		return verify.Skipped("its snapshot was not made")
	}
	_, err := s.snap(ctx, "second-snapshot")
	if err == nil {
		return verify.Held("it was made")
	}
	return refused(err, "SnapshotCreationPerVolumeRateExceeded", "ConcurrentSnapshotLimitExceeded")
}

func (s *Session) deleteSnapshot(ctx context.Context) verify.Result {
	if s.snapshot.ID == "" {
		return verify.Skipped("its snapshot was not made")
	}
	if err := s.Cloud.DeleteSnapshot(ctx, s.snapshot.ID); err != nil {
		return failed(err)
	}
	s.Ledger.Removed(s.snapshot.ID)
	if err := s.Cloud.DeleteSnapshot(ctx, s.snapshot.ID); err != nil && cloud.Code(err) != "InvalidSnapshot.NotFound" {
		return verify.Differed("its second deletion: %v", err)
	}
	return verify.Held("deleted")
}
