package cloud

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// CreateSnapshot creates a snapshot. EC2 has no client token for it, so it is not sent
// again after a lost answer: the error is then Uncertain.
func (c *Client) CreateSnapshot(ctx context.Context, in CreateSnapshotInput) (Snapshot, error) {
	op := operation{"CreateSnapshot", described(in.Tags[SnapshotNameTag], "of "+in.VolumeID), once}
	if !isID("vol", in.VolumeID) {
		return Snapshot{}, missing(op.action, "volume", in.VolumeID, "InvalidVolume.NotFound")
	}
	out, err := mutate(ctx, c, op, c.api.CreateSnapshot, &ec2.CreateSnapshotInput{
		VolumeId: aws.String(in.VolumeID), Description: unlessZero(in.Description), OutpostArn: unlessZero(in.OutpostARN),
		TagSpecifications: taggedAs(types.ResourceTypeSnapshot, in.Tags),
	})
	if err != nil {
		return Snapshot{}, err
	}
	s := toSnapshot(types.Snapshot{
		SnapshotId: out.SnapshotId, VolumeId: out.VolumeId, State: out.State, StateMessage: out.StateMessage,
		Progress: out.Progress, VolumeSize: out.VolumeSize, StartTime: out.StartTime, Tags: out.Tags,
	})
	if s.ID == "" {
		return s, incomplete(op)
	}
	if len(s.Tags) == 0 {
		s.Tags = toTags(fromTags(in.Tags))
	}
	c.memory.madeSnapshot(s)
	return s, nil
}

// DeleteSnapshot deletes a snapshot; ErrNotFound.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error {
	op := operation{"DeleteSnapshot", id, again}
	if !isID("snap", id) {
		return missing(op.action, "snapshot", id, "InvalidSnapshot.NotFound")
	}
	_, err := mutate(ctx, c, op, c.api.DeleteSnapshot, &ec2.DeleteSnapshotInput{SnapshotId: aws.String(id)})
	if err == nil {
		c.memory.deletedSnapshot(id)
	}
	return err
}

// LockSnapshot locks a snapshot. It is not sent again after a lost answer, because a
// lock can be extended and not shortened.
func (c *Client) LockSnapshot(ctx context.Context, in LockInput) error {
	op := operation{"LockSnapshot", in.SnapshotID, once}
	request := &ec2.LockSnapshotInput{
		SnapshotId: aws.String(in.SnapshotID), LockMode: types.LockMode(in.Mode),
		LockDuration: unlessZero(in.Duration), CoolOffPeriod: unlessZero(in.CoolOff),
	}
	if !in.Expires.IsZero() {
		request.ExpirationDate = aws.Time(in.Expires)
	}
	_, err := mutate(ctx, c, op, c.api.LockSnapshot, request)
	return err
}

// EnableFastRestore enables fast snapshot restore in the zones. It fails if EC2 refuses
// one of them. It may be repeated.
func (c *Client) EnableFastRestore(ctx context.Context, snapshotID string, zones []string) error {
	if len(zones) == 0 {
		return nil
	}
	op := operation{"EnableFastSnapshotRestores", snapshotID + " in " + strings.Join(zones, ", "), again}
	out, err := mutate(ctx, c, op, c.api.EnableFastSnapshotRestores, &ec2.EnableFastSnapshotRestoresInput{
		SourceSnapshotIds: []string{snapshotID}, AvailabilityZones: zones,
	})
	if err != nil {
		return err
	}
	return refusedZone(op, out.Unsuccessful)
}

// refusedZone is the first refusal in an answer whose status is 200 nevertheless.
func refusedZone(op operation, refused []types.EnableFastSnapshotRestoreErrorItem) error {
	if len(refused) == 0 {
		return nil
	}
	e := &Error{Action: op.action, resource: op.resource, Message: "refused without a reason",
		sentinel: backend.ErrPrecondition}
	if zones := refused[0].FastSnapshotRestoreStateErrors; len(zones) > 0 {
		e.Message = "refused in " + aws.ToString(zones[0].AvailabilityZone)
		if why := zones[0].Error; why != nil {
			e.Code = aws.ToString(why.Code)
			e.Message += ": " + aws.ToString(why.Message)
			e.sentinel = sentinelOf(e.Code, e.Message)
		}
	}
	return e
}
