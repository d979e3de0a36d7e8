package cloud

import (
	"context"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// DescribeByID describes volumes by their IDs in one call of EC2, without the lookups'
// batches and repairs: an ID that does not exist fails it. It is for tests of what EC2
// answers.
func (c *Client) DescribeByID(ctx context.Context, ids []string) ([]Volume, error) {
	return inOrder(c.describeVolumesByID(ctx, ids))
}

// DescribeByFilter is DescribeByID by the filter volume-id, which leaves out what does not
// exist.
func (c *Client) DescribeByFilter(ctx context.Context, ids []string) ([]Volume, error) {
	return inOrder(c.describeVolumes(ctx, ids))
}

// CheckInstance describes an instance by its ID in one call, like DescribeByID.
func (c *Client) CheckInstance(ctx context.Context, id string) error {
	_, err := c.describeInstancesByID(ctx, []string{id})
	return err
}

func inOrder(found map[string]Volume, err error) ([]Volume, error) {
	return slices.SortedFunc(maps.Values(found), olderVolume), err
}

// Names reports whether EC2's message of a failed call names a resource.
func Names(err error, id string) bool { return named(err)[id] }

// VolumesTagged lists the volumes that have a tag of this key, with this value unless that
// is "", oldest first.
func (c *Client) VolumesTagged(ctx context.Context, key, value string) ([]Volume, error) {
	in := &ec2.DescribeVolumesInput{Filters: tagged(key, value), MaxResults: aws.Int32(pageSize)}
	found := map[string]Volume{}
	op := operation{action: "DescribeVolumes", class: free}
	err := pages(ctx, c, op, c.api.DescribeVolumes, in, &in.NextToken, c.eachVolume(func(v Volume) { found[v.ID] = v }))
	return inOrder(found, err)
}

// SnapshotsTagged is VolumesTagged for the account's snapshots.
func (c *Client) SnapshotsTagged(ctx context.Context, key, value string) ([]Snapshot, error) {
	in := &ec2.DescribeSnapshotsInput{Filters: tagged(key, value), OwnerIds: []string{ownerSelf}, MaxResults: aws.Int32(pageSize)}
	var found []Snapshot
	op := operation{action: "DescribeSnapshots", class: free}
	err := pages(ctx, c, op, c.api.DescribeSnapshots, in, &in.NextToken, c.eachSnapshot(func(s Snapshot) { found = append(found, s) }))
	slices.SortFunc(found, olderSnapshot)
	return found, err
}

func tagged(key, value string) []types.Filter {
	if value == "" {
		return filter("tag-key", key)
	}
	return filter("tag:"+key, value)
}
