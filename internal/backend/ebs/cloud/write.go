package cloud

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// mutate is call for an action that changes something.
func mutate[I, O any](ctx context.Context, c *Client, op operation, do send[I, O], in *I) (*O, error) {
	c.bursts.Add()
	return call(ctx, c, op, do, in)
}

// CreateVolume creates a volume. A repeated call with its token has no further effect, so
// it is sent again until EC2 answers.
func (c *Client) CreateVolume(ctx context.Context, in CreateVolumeInput) (Volume, error) {
	if in.SourceVolumeID != "" {
		return c.copyVolume(ctx, in)
	}
	op := operation{"CreateVolume", described(in.Tags[NameTag], firstOf(in.Zone, in.ZoneID)), creation(in.ClientToken)}
	out, err := mutate(ctx, c, op, c.api.CreateVolume, &ec2.CreateVolumeInput{
		ClientToken:              unlessZero(in.ClientToken),
		AvailabilityZone:         unlessZero(in.Zone),
		AvailabilityZoneId:       unlessZero(in.ZoneID),
		VolumeType:               types.VolumeType(in.Type),
		Size:                     unlessZero(in.Size),
		Iops:                     unlessZero(in.IOPS),
		Throughput:               unlessZero(in.Throughput),
		Encrypted:                in.Encrypted,
		KmsKeyId:                 unlessZero(in.KMSKeyID),
		SnapshotId:               unlessZero(in.SnapshotID),
		VolumeInitializationRate: unlessZero(in.InitializationRate),
		MultiAttachEnabled:       unlessZero(in.MultiAttach),
		OutpostArn:               unlessZero(in.OutpostARN),
		TagSpecifications:        taggedAs(types.ResourceTypeVolume, in.Tags),
	})
	if err != nil {
		return Volume{}, err
	}
	return c.made(op, toVolume(types.Volume{
		Attachments: out.Attachments, AvailabilityZone: out.AvailabilityZone, AvailabilityZoneId: out.AvailabilityZoneId,
		CreateTime: out.CreateTime, Encrypted: out.Encrypted, Iops: out.Iops, KmsKeyId: out.KmsKeyId,
		MultiAttachEnabled: out.MultiAttachEnabled, OutpostArn: out.OutpostArn, Size: out.Size, SnapshotId: out.SnapshotId,
		SourceVolumeId: out.SourceVolumeId, State: out.State, Tags: out.Tags, Throughput: out.Throughput,
		VolumeId: out.VolumeId, VolumeType: out.VolumeType,
	}), in.Tags)
}

func (c *Client) copyVolume(ctx context.Context, in CreateVolumeInput) (Volume, error) {
	op := operation{"CopyVolumes", described(in.Tags[NameTag], in.SourceVolumeID), creation(in.ClientToken)}
	if !isID("vol", in.SourceVolumeID) {
		return Volume{}, missing(op.action, "volume", in.SourceVolumeID, "InvalidVolume.NotFound")
	}
	out, err := mutate(ctx, c, op, c.api.CopyVolumes, &ec2.CopyVolumesInput{
		ClientToken:        unlessZero(in.ClientToken),
		SourceVolumeId:     aws.String(in.SourceVolumeID),
		VolumeType:         types.VolumeType(in.Type),
		Size:               unlessZero(in.Size),
		Iops:               unlessZero(in.IOPS),
		Throughput:         unlessZero(in.Throughput),
		Encrypted:          in.Encrypted,
		KmsKeyId:           unlessZero(in.KMSKeyID),
		MultiAttachEnabled: unlessZero(in.MultiAttach),
		TagSpecifications:  taggedAs(types.ResourceTypeVolume, in.Tags),
	})
	if err != nil {
		return Volume{}, err
	}
	if len(out.Volumes) == 0 {
		return Volume{}, incomplete(op)
	}
	return c.made(op, toVolume(out.Volumes[0]), in.Tags)
}

// made records a created volume.
func (c *Client) made(op operation, v Volume, tags map[string]string) (Volume, error) {
	if v.ID == "" {
		return v, incomplete(op)
	}
	if len(v.Tags) == 0 {
		v.Tags = tags
	}
	v = v.clone()
	c.memory.madeVolume(v.clone())
	return v, nil
}

// creation is the class of a creation, which can be repeated if it has a token.
func creation(token string) class {
	if token == "" {
		return once
	}
	return free
}

// DeleteVolume deletes a volume; ErrNotFound.
func (c *Client) DeleteVolume(ctx context.Context, id string) error {
	op := operation{"DeleteVolume", id, again}
	if !isID("vol", id) {
		return missing(op.action, "volume", id, "InvalidVolume.NotFound")
	}
	_, err := mutate(ctx, c, op, c.api.DeleteVolume, &ec2.DeleteVolumeInput{VolumeId: aws.String(id)})
	if err == nil {
		c.memory.deletedVolume(id)
	}
	return err
}

// AttachVolume starts an attachment. It is sent again after a lost answer; an error of a
// later attempt is then Uncertain. After the context's end it waits for the answer to a
// request under way, for some seconds.
func (c *Client) AttachVolume(ctx context.Context, in AttachInput) (Attachment, error) {
	op := operation{"AttachVolume", in.VolumeID + " to " + in.InstanceID + " as " + in.Device, outlivesCaller}
	if err := attachable(op, in.VolumeID, in.InstanceID); err != nil {
		return Attachment{}, err
	}
	out, err := mutate(ctx, c, op, c.api.AttachVolume, &ec2.AttachVolumeInput{
		VolumeId: aws.String(in.VolumeID), InstanceId: aws.String(in.InstanceID),
		Device: aws.String(in.Device), EbsCardIndex: in.Card,
	})
	if err != nil {
		return Attachment{}, err
	}
	a := Attachment{
		VolumeID: in.VolumeID, InstanceID: in.InstanceID, Device: firstOf(aws.ToString(out.Device), in.Device),
		State: firstOf(string(out.State), Attaching),
		Since: aws.ToTime(out.AttachTime), Card: aws.ToInt32(out.EbsCardIndex),
	}
	c.memory.answered(a, true)
	return a, nil
}

// DetachVolume starts a detachment; like AttachVolume.
func (c *Client) DetachVolume(ctx context.Context, volumeID, instanceID string, force bool) error {
	op := operation{"DetachVolume", volumeID + " from " + instanceID, outlivesCaller}
	if err := attachable(op, volumeID, instanceID); err != nil {
		return err
	}
	out, err := mutate(ctx, c, op, c.api.DetachVolume, &ec2.DetachVolumeInput{
		VolumeId: aws.String(volumeID), InstanceId: aws.String(instanceID), Force: unlessZero(force),
	})
	if err != nil {
		return err
	}
	c.memory.answered(Attachment{
		VolumeID: volumeID, InstanceID: instanceID, Device: aws.ToString(out.Device),
		State: firstOf(string(out.State), Detaching),
		Since: aws.ToTime(out.AttachTime), Card: aws.ToInt32(out.EbsCardIndex),
	}, false)
	return nil
}

// attachable rejects malformed IDs.
func attachable(op operation, volumeID, instanceID string) error {
	if !isID("vol", volumeID) {
		return missing(op.action, "volume", volumeID, "InvalidVolume.NotFound")
	}
	if !isID("i", instanceID) {
		return missing(op.action, "instance", instanceID, "InvalidInstanceID.NotFound")
	}
	return nil
}

// ModifyVolume starts a modification. It is not sent again after a lost answer:
// the error is then Uncertain.
func (c *Client) ModifyVolume(ctx context.Context, in ModifyInput) (Modification, error) {
	op := operation{"ModifyVolume", in.VolumeID, once}
	if !isID("vol", in.VolumeID) {
		return Modification{}, missing(op.action, "volume", in.VolumeID, "InvalidVolume.NotFound")
	}
	out, err := mutate(ctx, c, op, c.api.ModifyVolume, &ec2.ModifyVolumeInput{
		VolumeId: aws.String(in.VolumeID), VolumeType: types.VolumeType(in.Type), Size: unlessZero(in.Size),
		Iops: unlessZero(in.IOPS), Throughput: unlessZero(in.Throughput),
	})
	if err != nil {
		return Modification{}, err
	}
	if out.VolumeModification == nil {
		return Modification{}, incomplete(op)
	}
	m := toModification(*out.VolumeModification)
	m.VolumeID = in.VolumeID
	c.memory.changed(m)
	return m, nil
}

// CreateTags sets tags on volumes and snapshots.
func (c *Client) CreateTags(ctx context.Context, ids []string, tags map[string]string) error {
	if len(ids) == 0 || len(tags) == 0 {
		return nil
	}
	op := operation{"CreateTags", strings.Join(ids, ", "), again}
	_, err := mutate(ctx, c, op, c.api.CreateTags, &ec2.CreateTagsInput{Resources: ids, Tags: fromTags(tags)})
	return err
}

// DeleteTags removes the tags with these keys and any values. Without keys it makes no
// call, because EC2 would remove every tag.
func (c *Client) DeleteTags(ctx context.Context, ids []string, keys []string) error {
	if len(ids) == 0 || len(keys) == 0 {
		return nil
	}
	keys = slices.Sorted(slices.Values(keys))
	tags := make([]types.Tag, len(keys))
	for i, key := range keys {
		tags[i].Key = aws.String(key) // no value: any value
	}
	op := operation{"DeleteTags", strings.Join(ids, ", "), again}
	_, err := mutate(ctx, c, op, c.api.DeleteTags, &ec2.DeleteTagsInput{Resources: ids, Tags: tags})
	return err
}

// described names a resource that has no ID yet.
func described(name, where string) string {
	switch {
	case name == "":
		return where
	case where == "":
		return name
	}
	return name + " (" + where + ")"
}

// incomplete is the error for an answer that lacks the resource.
func incomplete(op operation) error {
	return &Error{
		Action: op.action, resource: op.resource, Uncertain: op.class != free, sentinel: backend.ErrUnavailable,
		Message: "EC2 accepted the call, but its answer lacks the result",
	}
}
