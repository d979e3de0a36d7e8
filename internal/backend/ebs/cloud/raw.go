package cloud

import (
	"context"
	"maps"
	"slices"
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
