package cloud

import (
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Every field of EC2's answers may be absent. An absent one becomes the zero value.

func toVolume(v types.Volume) Volume {
	out := Volume{
		ID:             aws.ToString(v.VolumeId),
		Type:           string(v.VolumeType),
		State:          string(v.State),
		Size:           aws.ToInt32(v.Size),
		IOPS:           aws.ToInt32(v.Iops),
		Throughput:     aws.ToInt32(v.Throughput),
		Zone:           aws.ToString(v.AvailabilityZone),
		ZoneID:         aws.ToString(v.AvailabilityZoneId),
		OutpostARN:     aws.ToString(v.OutpostArn),
		Encrypted:      aws.ToBool(v.Encrypted),
		MultiAttach:    aws.ToBool(v.MultiAttachEnabled),
		KMSKeyID:       aws.ToString(v.KmsKeyId),
		SnapshotID:     aws.ToString(v.SnapshotId),
		SourceVolumeID: aws.ToString(v.SourceVolumeId),
		Created:        aws.ToTime(v.CreateTime),
		Tags:           toTags(v.Tags),
	}
	for _, a := range v.Attachments {
		attachment := toAttachment(a)
		if attachment.VolumeID == "" {
			attachment.VolumeID = out.ID
		}
		out.Attachments = append(out.Attachments, attachment)
	}
	return out
}

func toAttachment(a types.VolumeAttachment) Attachment {
	return Attachment{
		VolumeID:   aws.ToString(a.VolumeId),
		InstanceID: aws.ToString(a.InstanceId),
		Device:     aws.ToString(a.Device),
		State:      string(a.State),
		Since:      aws.ToTime(a.AttachTime),
		Card:       aws.ToInt32(a.EbsCardIndex),
	}
}

func toInstance(i types.Instance) Instance {
	out := Instance{
		ID:         aws.ToString(i.InstanceId),
		Type:       string(i.InstanceType),
		RootDevice: aws.ToString(i.RootDeviceName),
		Interfaces: max(1, len(i.NetworkInterfaces)),
	}
	if i.State != nil {
		out.State = string(i.State.Name)
	}
	if i.Placement != nil {
		out.Zone = aws.ToString(i.Placement.AvailabilityZone)
	}
	for _, m := range i.BlockDeviceMappings {
		device := InstanceDevice{Name: aws.ToString(m.DeviceName)}
		if m.Ebs != nil {
			device.VolumeID = aws.ToString(m.Ebs.VolumeId)
			device.State = string(m.Ebs.Status)
			device.Card = aws.ToInt32(m.Ebs.EbsCardIndex)
		}
		out.Devices = append(out.Devices, device)
	}
	return out
}

func toInstanceType(t types.InstanceTypeInfo) InstanceType {
	out := InstanceType{Name: string(t.InstanceType), Cards: 1}
	if t.EbsInfo != nil {
		out.Cards = max(1, int(aws.ToInt32(t.EbsInfo.MaximumEbsCards)), len(t.EbsInfo.EbsCards))
	}
	return out
}

func toModification(m types.VolumeModification) Modification {
	return Modification{
		VolumeID:         aws.ToString(m.VolumeId),
		State:            string(m.ModificationState),
		Message:          aws.ToString(m.StatusMessage),
		TargetType:       string(m.TargetVolumeType),
		TargetSize:       aws.ToInt32(m.TargetSize),
		TargetIOPS:       aws.ToInt32(m.TargetIops),
		TargetThroughput: aws.ToInt32(m.TargetThroughput),
		Progress:         aws.ToInt64(m.Progress),
		Start:            aws.ToTime(m.StartTime),
	}
}

func toSnapshot(s types.Snapshot) Snapshot {
	return Snapshot{
		ID:       aws.ToString(s.SnapshotId),
		VolumeID: aws.ToString(s.VolumeId),
		State:    string(s.State),
		Message:  aws.ToString(s.StateMessage),
		Progress: aws.ToString(s.Progress),
		Size:     aws.ToInt32(s.VolumeSize),
		Started:  aws.ToTime(s.StartTime),
		Tags:     toTags(s.Tags),
	}
}

func toStatus(s types.VolumeStatusItem) Status {
	out := Status{VolumeID: aws.ToString(s.VolumeId), Details: map[string]string{}}
	if s.VolumeStatus != nil {
		out.State = string(s.VolumeStatus.Status)
		for _, d := range s.VolumeStatus.Details {
			out.Details[string(d.Name)] = aws.ToString(d.Status)
		}
	}
	for _, e := range s.Events {
		if strings.Contains(strings.ToLower(aws.ToString(e.Description)), "[completed]") {
			continue
		}
		out.Events = append(out.Events, firstOf(aws.ToString(e.Description), aws.ToString(e.EventType)))
	}
	if i := s.InitializationStatusDetails; i != nil {
		out.InitializationProgress = aws.ToInt64(i.Progress)
		out.Remaining = time.Duration(aws.ToInt64(i.EstimatedTimeToCompleteInSeconds)) * time.Second
	}
	return out
}

func toLock(l types.LockedSnapshotsInfo) Lock {
	return Lock{
		SnapshotID: aws.ToString(l.SnapshotId),
		State:      string(l.LockState),
		Expires:    aws.ToTime(l.LockExpiresOn),
	}
}

func toFastRestore(f types.DescribeFastSnapshotRestoreSuccessItem) FastRestore {
	return FastRestore{
		SnapshotID: aws.ToString(f.SnapshotId),
		Zone:       aws.ToString(f.AvailabilityZone),
		State:      string(f.State),
	}
}

func toZone(z types.AvailabilityZone) Zone {
	return Zone{
		Name:  aws.ToString(z.ZoneName),
		ID:    aws.ToString(z.ZoneId),
		State: string(z.State),
		Type:  aws.ToString(z.ZoneType),
	}
}

func toTags(tags []types.Tag) map[string]string {
	out := make(map[string]string, len(tags))
	for _, t := range tags {
		out[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return out
}

// fromTags returns the tags sorted by key, so that a repeated call is byte for byte the
// same.
func fromTags(tags map[string]string) []types.Tag {
	out := make([]types.Tag, 0, len(tags))
	for k, v := range tags {
		out = append(out, types.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	slices.SortFunc(out, func(a, b types.Tag) int { return strings.Compare(*a.Key, *b.Key) })
	return out
}

// taggedAs returns the tags of a resource to create, nil without tags.
func taggedAs(kind types.ResourceType, tags map[string]string) []types.TagSpecification {
	if len(tags) == 0 {
		return nil
	}
	return []types.TagSpecification{{ResourceType: kind, Tags: fromTags(tags)}}
}

// unlessZero returns nil for the zero value, for which EC2 uses its default.
func unlessZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
