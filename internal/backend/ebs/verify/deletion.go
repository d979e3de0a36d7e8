package verify

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/verify"
)

// deletion are the checks that end the volume of the others.
func (s *Session) deletion() []verify.Check {
	return []verify.Check{
		check("ec2-delete", "DeleteVolume of an available volume succeeds; within a minute no describe shows it as anything but deleting or deleted",
			"EC2 API reference, DeleteVolume", "a deleted volume is reported as present", s.delete),
		check("ec2-delete-again", "its second deletion succeeds or fails with InvalidVolume.NotFound",
			errorCodes, "a repeated deletion fails for ever", s.deleteAgain),
		check("ec2-token-spent", "CreateVolume with the client token of a deleted volume fails with IdempotentParameterMismatch and a message that speaks of the deletion",
			undocumented, "a claim whose volume was deleted gets no volume for as long as EC2 remembers the token", s.tokenSpent),
	}
}

func (s *Session) delete(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	if err := s.Cloud.DeleteVolume(ctx, s.volume.ID); err != nil {
		return failed(err)
	}
	s.spent = s.token("main")
	state := ""
	took, err := within(ctx, time.Minute, func(ctx context.Context) (bool, error) {
		found, err := s.Cloud.DescribeByFilter(ctx, []string{s.volume.ID})
		if len(found) == 1 {
			state = found[0].State
		}
		return err == nil && (len(found) == 0 || state == cloud.VolumeDeleting || state == cloud.VolumeDeleted), err
	})
	if err != nil {
		return verify.Differed("state %q: %v", state, err)
	}
	return verify.Held("after %v", took.Round(10*time.Millisecond))
}

func (s *Session) deleteAgain(ctx context.Context) verify.Result {
	if s.spent == "" {
		return verify.Skipped("its volume was not deleted")
	}
	_, err := within(ctx, time.Minute, func(ctx context.Context) (bool, error) {
		err := s.Cloud.DeleteVolume(ctx, s.volume.ID)
		if errors.Is(err, backend.ErrBusy) { // still deleting
			return false, nil
		}
		return err == nil || errors.Is(err, backend.ErrNotFound), ignoreMissing(err)
	})
	if err != nil {
		return failed(err)
	}
	s.Ledger.Removed(s.volume.ID)
	return verify.Held("gone")
}

func (s *Session) tokenSpent(ctx context.Context) verify.Result {
	if s.spent == "" {
		return verify.Skipped("its volume was not deleted")
	}
	v, err := s.make(ctx, s.request("main"))
	switch {
	case err == nil && v.ID == s.volume.ID:
		return verify.Differed("it returned the deleted volume")
	case err == nil:
		return verify.Differed("it made another volume, %s", v.ID)
	case cloud.TokenSpent(err):
		return verify.Held("%v", err)
	}
	return failed(err)
}
