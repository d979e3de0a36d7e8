package cloud

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// ownerSelf keeps describes of snapshots to the account's own; without it EC2
// searches all public snapshots, too.
const ownerSelf = "self"

func (c *Client) describeSnapshots(ctx context.Context, ids []string) (map[string]Snapshot, error) {
	found := map[string]Snapshot{}
	err := c.snapshotPages(ctx, about("DescribeSnapshots", "snapshots", ids),
		&ec2.DescribeSnapshotsInput{Filters: filter("snapshot-id", ids...), MaxResults: aws.Int32(pageSize)}, len(ids),
		func(s Snapshot) { found[s.ID] = s })
	return found, err
}

func (c *Client) describeSnapshotsByID(ctx context.Context, ids []string) (map[string]Snapshot, error) {
	return byID(ctx, ids, func(ctx context.Context, ids []string) (map[string]Snapshot, error) {
		found := map[string]Snapshot{}
		err := c.snapshotPages(ctx, about("DescribeSnapshots", "snapshots", ids),
			&ec2.DescribeSnapshotsInput{SnapshotIds: ids}, len(ids), func(s Snapshot) { found[s.ID] = s })
		return found, err
	})
}

// describeSnapshotsNamed finds snapshots by their CSI names, with those that this
// client has just taken; see describeVolumesNamed.
func (c *Client) describeSnapshotsNamed(ctx context.Context, names []string) (map[string][]Snapshot, error) {
	out := map[string][]Snapshot{}
	err := c.snapshotPages(ctx, about("DescribeSnapshots", "names", names), &ec2.DescribeSnapshotsInput{
		OwnerIds: []string{ownerSelf}, Filters: filter("tag:"+SnapshotNameTag, names...), MaxResults: aws.Int32(pageSize),
	}, len(names), func(s Snapshot) { out[s.Tags[SnapshotNameTag]] = append(out[s.Tags[SnapshotNameTag]], s) })
	if err != nil {
		return nil, err
	}
	for _, made := range c.memory.recentSnapshots(names) {
		name := made.Tags[SnapshotNameTag]
		if !slices.ContainsFunc(out[name], func(s Snapshot) bool { return s.ID == made.ID }) {
			out[name] = append(out[name], made)
		}
	}
	for _, snapshots := range out {
		slices.SortFunc(snapshots, olderSnapshot)
	}
	return out, nil
}

// snapshotPages describes snapshots; keys is how many are asked for.
func (c *Client) snapshotPages(ctx context.Context, op operation, in *ec2.DescribeSnapshotsInput, keys int, each func(Snapshot)) error {
	if keys == 0 {
		return nil
	}
	return pages(func(token *string) (*string, error) {
		in.NextToken = token
		out, err := call(ctx, c, op, c.api.DescribeSnapshots, in)
		if err != nil {
			return nil, err
		}
		for _, s := range out.Snapshots {
			if one, ok := c.memory.seenSnapshot(toSnapshot(s)); ok {
				each(one)
			}
		}
		return out.NextToken, nil
	})
}

func (c *Client) describeFastRestores(ctx context.Context, ids []string) (map[string][]FastRestore, error) {
	found := map[string][]FastRestore{}
	if len(ids) == 0 {
		return found, nil
	}
	in := &ec2.DescribeFastSnapshotRestoresInput{Filters: filter("snapshot-id", ids...), MaxResults: aws.Int32(filterLimit)}
	return found, pages(func(token *string) (*string, error) {
		in.NextToken = token
		out, err := call(ctx, c, about("DescribeFastSnapshotRestores", "snapshots", ids), c.api.DescribeFastSnapshotRestores, in)
		if err != nil {
			return nil, err
		}
		for _, f := range out.FastSnapshotRestores {
			one := toFastRestore(f)
			found[one.SnapshotID] = append(found[one.SnapshotID], one)
		}
		return out.NextToken, nil
	})
}

func (c *Client) describeLocks(ctx context.Context, ids []string) (map[string]Lock, error) {
	return byID(ctx, ids, func(ctx context.Context, ids []string) (map[string]Lock, error) {
		found := map[string]Lock{}
		in := &ec2.DescribeLockedSnapshotsInput{SnapshotIds: ids}
		return found, pages(func(token *string) (*string, error) {
			in.NextToken = token
			out, err := call(ctx, c, about("DescribeLockedSnapshots", "snapshots", ids), c.api.DescribeLockedSnapshots, in)
			if err != nil {
				return nil, err
			}
			for _, l := range out.Snapshots {
				one := toLock(l)
				found[one.SnapshotID] = one
			}
			return out.NextToken, nil
		})
	})
}

// olderSnapshot orders snapshots by their time.
func olderSnapshot(a, b Snapshot) int {
	if order := a.Started.Compare(b.Started); order != 0 {
		return order
	}
	return strings.Compare(a.ID, b.ID)
}
