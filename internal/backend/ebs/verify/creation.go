package verify

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/verify"
)

// creation are the checks of CreateVolume. The first one makes the volume that the others
// use.
func (s *Session) creation() []verify.Check {
	return []verify.Check{
		check("ec2-create", "CreateVolume makes a gp3 volume of 1 GiB with the tags of the call, creating or available",
			"EC2 API reference, CreateVolume", "no volume is made, or one without the tags by which it is found", s.create),
		check("ec2-visible-by-id", "a describe shows a new volume by the filter volume-id within 10 s", eventual,
			"CreateVolume reports a volume as missing that exists", s.visibleByID),
		check("ec2-visible-by-name", "a describe shows a new volume by its tag CSIVolumeName within 10 s", eventual,
			"a controller that restarts after a lost answer makes a second volume of the name", s.visibleByName),
		check("ec2-token-repeat", "CreateVolume with the same client token and parameters returns the same volume",
			idempotency, "a lost answer makes a second volume", s.repeat),
		check("ec2-token-mismatch", "CreateVolume with the same client token and another size fails with IdempotentParameterMismatch, whose message does not speak of a deleted volume",
			idempotency, "another volume is made under the name", s.mismatch),
		check("ec2-create-available", "a new volume becomes available, and no other state follows creating",
			"EBS user guide, volume state", "CreateVolume waits until its deadline", s.available),
		check("ec2-size-out-of-range", "a gp3 volume that is too large is refused with a code and a message that the driver takes for a size out of range",
			undocumented, "a size that cannot be served is INVALID_ARGUMENT instead of OUT_OF_RANGE",
			s.badRequest("too-large", func(in *cloud.CreateVolumeInput) { in.Size = 1 << 20 }, backend.ErrOutOfRange)),
		check("ec2-iops-out-of-range", "too many IOPS are refused as a wrong request",
			errorCodes, "a class that cannot be served is repeated for ever",
			s.badRequest("too-fast", func(in *cloud.CreateVolumeInput) { in.IOPS = 1 << 20 }, backend.ErrOutOfRange, backend.ErrInvalid)),
		check("ec2-unknown-zone", "a zone that does not exist is refused as a wrong request",
			errorCodes, "a class with a wrong zone is repeated for ever",
			s.badRequest("no-zone", func(in *cloud.CreateVolumeInput) { in.Zone += "-none" }, backend.ErrInvalid)),
		check("ec2-unknown-key", "a KMS key that does not exist is refused as a wrong request, or the volume vanishes or fails within a minute",
			"EBS user guide, Troubleshooting volumes that fail to create", "a claim with a wrong key waits without a reason", s.unknownKey),
	}
}

// request is a small volume with the run's tags, under a name of its own.
func (s *Session) request(step string) cloud.CreateVolumeInput {
	return cloud.CreateVolumeInput{
		ClientToken: s.token(step), Zone: s.Zone, Type: "gp3", Size: 1,
		Tags: map[string]string{Tag: s.Run, cloud.NameTag: s.token(step)},
	}
}

// make creates a volume and records it, unless the request's client token is that of one
// that was recorded.
func (s *Session) make(ctx context.Context, in cloud.CreateVolumeInput) (cloud.Volume, error) {
	v, err := s.Cloud.CreateVolume(ctx, in)
	s.noteAsked(ctx, err)
	if err == nil && v.ID != s.volume.ID {
		s.record(v.ID, time.Now())
	}
	return v, err
}

// record records a volume and when it was made; zero for long ago.
func (s *Session) record(id string, made time.Time) {
	s.Ledger.Add("volume", id, "aws ec2 delete-volume --volume-id "+id, func(ctx context.Context) error {
		return s.remove(ctx, id, made)
	})
}

// remove detaches and deletes a volume; one that is gone is removed.
func (s *Session) remove(ctx context.Context, id string, made time.Time) error {
	_, err := within(ctx, transition, func(ctx context.Context) (bool, error) {
		err := s.Cloud.DeleteVolume(ctx, id)
		if errors.Is(err, backend.ErrInUse) || errors.Is(err, backend.ErrBusy) {
			return false, s.detachFromAll(ctx, id)
		}
		return err == nil || isGone(err, made), ignoreMissing(err)
	})
	return err
}

func ignoreMissing(err error) error {
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	return err
}

// detachFromAll requests the end of every attachment that is not ending yet.
func (s *Session) detachFromAll(ctx context.Context, id string) error {
	found, err := s.Cloud.DescribeByFilter(ctx, []string{id})
	if err != nil || len(found) == 0 {
		return err
	}
	for _, a := range found[0].Attachments {
		if a.State == cloud.Detaching || a.State == cloud.Detached || a.State == cloud.Busy {
			continue
		}
		if err := s.Cloud.DetachVolume(ctx, id, a.InstanceID, false); err != nil && !errors.Is(err, backend.ErrBusy) {
			return ignoreMissing(err)
		}
	}
	return nil
}

func (s *Session) create(ctx context.Context) verify.Result {
	if skipped, missing := s.needsZone(); missing {
		return skipped
	}
	in := s.request("main")
	v, err := s.make(ctx, in)
	if err != nil {
		return failed(err)
	}
	s.volume = v
	switch {
	case v.State != cloud.VolumeCreating && v.State != cloud.VolumeAvailable:
		return verify.Differed("state %q", v.State)
	case v.Size != 1 || v.Type != "gp3":
		return verify.Differed("%d GiB of %s", v.Size, v.Type)
	case v.Tags[cloud.NameTag] != in.Tags[cloud.NameTag]:
		return verify.Differed("tags %v", v.Tags)
	}
	return verify.Held("state %s, %d IOPS, %d MiB/s", v.State, v.IOPS, v.Throughput)
}

func (s *Session) visibleByID(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	return appears(ctx, func(ctx context.Context) (bool, error) {
		found, err := s.Cloud.DescribeByFilter(ctx, []string{s.volume.ID})
		return len(found) == 1, err
	})
}

func (s *Session) visibleByName(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	return appears(ctx, func(ctx context.Context) (bool, error) {
		found, err := s.Cloud.VolumesNamed(ctx, s.token("main"))
		return len(found) == 1 && found[0].ID == s.volume.ID, err
	})
}

func (s *Session) repeat(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	v, err := s.make(ctx, s.request("main"))
	switch {
	case err != nil:
		return failed(err)
	case v.ID != s.volume.ID:
		return verify.Differed("it made another volume, %s", v.ID)
	}
	return verify.Held("the same volume")
}

func (s *Session) mismatch(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	in := s.request("main")
	in.Size = 2
	_, err := s.make(ctx, in)
	if cloud.TokenSpent(err) {
		return verify.Differed("the message reads as if the volume were gone: %v", err)
	}
	return refused(err, "IdempotentParameterMismatch")
}

func (s *Session) available(ctx context.Context) verify.Result {
	if skipped, missing := s.needsVolume(); missing {
		return skipped
	}
	state := ""
	took, err := within(ctx, transition, func(ctx context.Context) (bool, error) {
		found, err := s.Cloud.DescribeByFilter(ctx, []string{s.volume.ID})
		if err != nil || len(found) == 0 {
			return false, err
		}
		state = found[0].State
		return state != cloud.VolumeCreating, nil
	})
	switch {
	case err != nil:
		return verify.Differed("state %q: %v", state, err)
	case state != cloud.VolumeAvailable:
		return verify.Differed("state %q", state)
	}
	return verify.Held("after %v", took.Round(10*time.Millisecond))
}

// badRequest is a check of a creation that EC2 must refuse, with an error that the driver
// takes for one of the sentinels.
func (s *Session) badRequest(step string, corrupt func(*cloud.CreateVolumeInput), sentinels ...error) func(context.Context) verify.Result {
	return func(ctx context.Context) verify.Result {
		if skipped, missing := s.needsZone(); missing {
			return skipped
		}
		in := s.request(step)
		corrupt(&in)
		_, err := s.make(ctx, in)
		if err == nil {
			return verify.Differed("EC2 accepted it")
		}
		for _, sentinel := range sentinels {
			if errors.Is(err, sentinel) {
				return verify.Held("%v", err)
			}
		}
		return failed(err)
	}
}

// noKey is the ID of a KMS key that does not exist.
const noKey = "00000000-0000-4000-8000-000000000000"

func (s *Session) unknownKey(ctx context.Context) verify.Result {
	if skipped, missing := s.needsZone(); missing {
		return skipped
	}
	in, encrypted := s.request("no-key"), true
	in.KMSKeyID, in.Encrypted = noKey, &encrypted
	v, err := s.make(ctx, in)
	if errors.Is(err, backend.ErrInvalid) {
		return verify.Held("%v", err)
	}
	if err != nil {
		return failed(err)
	}
	state, began := v.State, time.Now()
	_, err = within(ctx, time.Minute, func(ctx context.Context) (bool, error) {
		found, err := s.Cloud.DescribeByFilter(ctx, []string{v.ID})
		if err != nil || len(found) == 0 {
			return time.Since(began) > 2*Lag, err // until then it may not be shown yet
		}
		state = found[0].State
		return state == cloud.VolumeError, nil
	})
	if err != nil {
		return verify.Differed("state %q: %v", state, err)
	}
	return verify.Held("accepted, then the volume vanished or failed; last state %q", state)
}
