package verify

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/verify"
)

// modification are the checks of ModifyVolume.
func (s *Session) modification() []verify.Check {
	return []verify.Check{
		check("ec2-never-modified", "DescribeVolumesModifications by the filter volume-id answers nothing for a volume that was never modified",
			undocumented, "the first growth of a volume fails", s.neverModified),
		check("ec2-shrink", "a smaller size is refused as a wrong request", "EC2 API reference, ModifyVolume",
			"a size that cannot be served is repeated for ever", s.shrink),
		check("ec2-grow", "ModifyVolume grows a volume: modifying, then optimizing or completed; from optimizing on, DescribeVolumes shows the new size within 10 s",
			"EBS user guide, Monitor the progress of volume modifications", "a filesystem is grown before its disk, or never", s.grow),
		check("ec2-modify-again", "a second modification right after the first is refused with IncorrectModificationState or VolumeModificationRateExceeded, or succeeds",
			"EBS user guide, Limitations for EBS volume modifications", "a change that waits for the cooldown is an internal error", s.modifyAgain),
	}
}

func (s *Session) neverModified(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	m, found, err := s.Cloud.Modification(ctx, s.volume.ID)
	switch {
	case err != nil:
		return failed(err)
	case found:
		return verify.Differed("state %q", m.State)
	}
	return verify.Held("nothing")
}

func (s *Session) shrink(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	in := s.request("shrink")
	in.Size = 2
	v, err := s.make(ctx, in)
	if err == nil {
		_, err = within(ctx, transition, func(ctx context.Context) (bool, error) {
			found, err := s.Cloud.DescribeByFilter(ctx, []string{v.ID})
			return len(found) == 1 && found[0].State == cloud.VolumeAvailable, err
		})
	}
	if err != nil {
		return verify.Skipped("its volume was not made: %v", err)
	}
	_, err = s.Cloud.ModifyVolume(ctx, cloud.ModifyInput{VolumeID: v.ID, Size: 1})
	switch {
	case err == nil:
		return verify.Differed("EC2 accepted it")
	case errors.Is(err, backend.ErrInvalid), errors.Is(err, backend.ErrOutOfRange):
		return verify.Held("%v", err)
	}
	return failed(err)
}

func (s *Session) grow(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	if _, err := s.Cloud.ModifyVolume(ctx, cloud.ModifyInput{VolumeID: s.volume.ID, Size: 2}); err != nil {
		return failed(err)
	}
	var m cloud.Modification
	took, err := within(ctx, 2*transition, func(ctx context.Context) (bool, error) {
		var found bool
		var err error
		m, found, err = s.Cloud.Modification(ctx, s.volume.ID)
		return found && m.State != cloud.Modifying, err
	})
	switch {
	case err != nil:
		return verify.Differed("state %q: %v", m.State, err)
	case m.State != cloud.Optimizing && m.State != cloud.ModificationCompleted:
		return verify.Differed("state %q: %s", m.State, m.Message)
	}
	shown := appears(ctx, func(ctx context.Context) (bool, error) {
		found, err := s.Cloud.DescribeByFilter(ctx, []string{s.volume.ID})
		return len(found) == 1 && found[0].Size == 2, err
	})
	if shown.Outcome != verify.Holds {
		return shown
	}
	return verify.Held("%s after %v; the size %s", m.State, took.Round(10*time.Millisecond), shown.Seen)
}

func (s *Session) modifyAgain(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	_, err := s.Cloud.ModifyVolume(ctx, cloud.ModifyInput{VolumeID: s.volume.ID, Size: 3})
	if err == nil {
		return verify.Held("accepted")
	}
	return refused(err, "IncorrectModificationState", "VolumeModificationRateExceeded")
}
