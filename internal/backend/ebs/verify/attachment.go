package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/verify"
)

// attachment are the checks of AttachVolume and DetachVolume, and of the disk that the
// instance has meanwhile.
func (s *Session) attachment() []verify.Check {
	return []verify.Check{
		check("ec2-attach", "AttachVolume answers with the requested device name; the attachment is attaching, then attached",
			"EC2 API reference, AttachVolume", "ControllerPublishVolume waits until its deadline", s.attach),
		check("ec2-attach-again", "a second AttachVolume of the volume to the instance fails with VolumeInUse",
			errorCodes, "a repeated publish is an internal error", s.attachAgain),
		check("ec2-device-name-taken", "a device name that is in use is refused so that the driver tries another: InvalidParameterValue with 'already in use', or InvalidDevice.InUse",
			undocumented, "a volume is not attached although other names are free", s.nameTaken),
		check("ec2-delete-in-use", "the deletion of an attached volume fails with VolumeInUse",
			errorCodes, "a volume that is in use is reported as an internal error",
			func(ctx context.Context) verify.Result {
				if skipped, missing := s.needsAttachment(); missing {
					return skipped
				}
				return refused(s.Cloud.DeleteVolume(ctx, s.volume.ID), "VolumeInUse")
			}),
		check("nvme-serial", "the guest has a disk whose NVMe serial is the volume's ID without the dash, and whose model is Amazon Elastic Block Store",
			"EC2 user guide, Identify the EBS device", "the node finds no disk for a volume", s.guestDisk),
		check("ec2-detach", "DetachVolume of an idle disk ends the attachment: detaching, then none",
			"EC2 API reference, DetachVolume", "ControllerUnpublishVolume waits until its deadline", s.detach),
		check("nvme-disk-leaves", "the guest's disk is gone within 30 s after the detachment",
			undocumented, "a later volume is taken for this one", s.guestDiskLeaves),
		check("ec2-detach-again", "DetachVolume of a volume that is not attached fails with IncorrectState or InvalidAttachment.NotFound",
			errorCodes, "a repeated unpublish fails for ever", s.detachAgain),
	}
}

func (s *Session) needsInstance() (verify.Result, bool) {
	if skipped, missing := s.needsVolume(); missing {
		return skipped, true
	}
	return verify.Skipped("it attaches a volume: name an instance of the zone with --instance-id"), s.InstanceID == ""
}

func (s *Session) needsAttachment() (verify.Result, bool) {
	if skipped, missing := s.needsInstance(); missing {
		return skipped, true
	}
	return verify.Skipped("its volume was not attached"), s.device == ""
}

// names are device names that EC2 recommends for EBS volumes of HVM instances (EC2 user
// guide, "Available device names on Linux"), far from those that people use first.
func names() (all []string) {
	for c := 'p'; c >= 'k'; c-- {
		all = append(all, fmt.Sprintf("/dev/sd%c", c))
	}
	return all
}

func (s *Session) attach(ctx context.Context) verify.Result {
	if skipped, missing := s.needsInstance(); missing {
		return skipped
	}
	instance, err := s.Cloud.Instance(ctx, s.InstanceID)
	if err != nil {
		return failed(err)
	}
	used := func(name string) bool {
		return slices.ContainsFunc(instance.Devices, func(d cloud.InstanceDevice) bool { return d.Name == name })
	}
	free := slices.DeleteFunc(names(), used)
	if len(free) == 0 {
		return verify.Skipped("the instance uses all of %s", strings.Join(names(), ", "))
	}
	a, err := s.Cloud.AttachVolume(ctx, cloud.AttachInput{VolumeID: s.volume.ID, InstanceID: s.InstanceID, Device: free[0]})
	if err != nil {
		return failed(err)
	}
	s.device = free[0]
	if a.Device != free[0] {
		return verify.Differed("device %s for %s", a.Device, free[0])
	}
	state := a.State
	took, err := within(ctx, transition, func(ctx context.Context) (bool, error) {
		var err error
		state, err = s.attachmentState(ctx)
		return state != cloud.Attaching && state != "", err
	})
	if err != nil || state != cloud.Attached {
		return verify.Differed("state %q after %v: %v", state, took, err)
	}
	return verify.Held("attached after %v", took.Round(10*time.Millisecond))
}

// attachmentState is that of the volume on the instance; "" if EC2 shows none.
func (s *Session) attachmentState(ctx context.Context) (string, error) {
	found, err := s.Cloud.DescribeByFilter(ctx, []string{s.volume.ID})
	if err != nil || len(found) == 0 {
		return "", err
	}
	for _, a := range found[0].Attachments {
		if a.InstanceID == s.InstanceID && a.State != cloud.Detached {
			return a.State, nil
		}
	}
	return "", nil
}

func (s *Session) attachAgain(ctx context.Context) verify.Result {
	if skipped, missing := s.needsAttachment(); missing {
		return skipped
	}
	_, err := s.Cloud.AttachVolume(ctx, cloud.AttachInput{VolumeID: s.volume.ID, InstanceID: s.InstanceID, Device: s.device})
	return refused(err, "VolumeInUse")
}

func (s *Session) nameTaken(ctx context.Context) verify.Result {
	if skipped, missing := s.needsAttachment(); missing {
		return skipped
	}
	v, err := s.make(ctx, s.request("second"))
	if err == nil {
		_, err = within(ctx, transition, func(ctx context.Context) (bool, error) {
			found, err := s.Cloud.DescribeByFilter(ctx, []string{v.ID})
			return len(found) == 1 && found[0].State == cloud.VolumeAvailable, err
		})
	}
	if err != nil {
		return verify.Skipped("its volume was not made: %v", err)
	}
	_, err = s.Cloud.AttachVolume(ctx, cloud.AttachInput{VolumeID: v.ID, InstanceID: s.InstanceID, Device: s.device})
	switch {
	case err == nil:
		return verify.Differed("EC2 accepted %s for two volumes", s.device)
	case cloud.DeviceNameTaken(err):
		return verify.Held("%v", err)
	}
	return failed(err)
}

func (s *Session) guestDisk(ctx context.Context) verify.Result {
	if skipped, missing := s.needsGuest(); missing {
		return skipped
	}
	var serial, model string
	took, err := within(ctx, time.Minute, func(ctx context.Context) (bool, error) {
		var err error
		serial, model, err = s.Machine.Disk(ctx, s.volume.ID)
		return serial != "", err
	})
	switch {
	case err != nil:
		return verify.Differed("no such disk after %v: %v", took.Round(time.Second), err)
	case model != amazonModel:
		return verify.Differed("model %q", model)
	}
	return verify.Held("serial %s after %v", serial, took.Round(10*time.Millisecond))
}

// amazonModel is the NVMe model number of an EBS volume.
const amazonModel = "Amazon Elastic Block Store"

func (s *Session) needsGuest() (verify.Result, bool) {
	if skipped, missing := s.needsAttachment(); missing {
		return skipped, true
	}
	return verify.Skipped("this machine is not the instance: run it there"), s.Machine == nil
}

func (s *Session) detach(ctx context.Context) verify.Result {
	if skipped, missing := s.needsAttachment(); missing {
		return skipped
	}
	if err := s.Cloud.DetachVolume(ctx, s.volume.ID, s.InstanceID, false); err != nil {
		return failed(err)
	}
	state := ""
	took, err := within(ctx, transition, func(ctx context.Context) (bool, error) {
		var err error
		state, err = s.attachmentState(ctx)
		return state == "", err
	})
	if err != nil {
		return verify.Differed("state %q: %v", state, err)
	}
	return verify.Held("after %v", took.Round(10*time.Millisecond))
}

func (s *Session) guestDiskLeaves(ctx context.Context) verify.Result {
	if skipped, missing := s.needsGuest(); missing {
		return skipped
	}
	took, err := within(ctx, 30*time.Second, func(ctx context.Context) (bool, error) {
		serial, _, err := s.Machine.Disk(ctx, s.volume.ID)
		return serial == "", err
	})
	if err != nil {
		return verify.Differed("%v", err)
	}
	return verify.Held("after %v", took.Round(10*time.Millisecond))
}

func (s *Session) detachAgain(ctx context.Context) verify.Result {
	if skipped, missing := s.needsAttachment(); missing {
		return skipped
	}
	return refused(s.Cloud.DetachVolume(ctx, s.volume.ID, s.InstanceID, false), "IncorrectState", "InvalidAttachment.NotFound")
}
