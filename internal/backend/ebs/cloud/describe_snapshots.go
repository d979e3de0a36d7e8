package cloud

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// ownerSelf restricts describes to the account's own snapshots; without it EC2 also
// searches all public snapshots.
const ownerSelf = "self"

// eachSnapshot reads a page of snapshots.
func (c *Client) eachSnapshot(do func(Snapshot)) func(*ec2.DescribeSnapshotsOutput) *string {
	return func(out *ec2.DescribeSnapshotsOutput) *string {
		for _, s := range out.Snapshots {
			if one, ok := c.memory.seenSnapshot(toSnapshot(s)); ok {
				do(one)
			}
		}
		return out.NextToken
	}
}

func (c *Client) describeSnapshots(ctx context.Context, ids []string) (map[string]Snapshot, error) {
	in := &ec2.DescribeSnapshotsInput{Filters: filter("snapshot-id", ids...), MaxResults: aws.Int32(pageSize)}
	found := map[string]Snapshot{}
	return found, pagesOf(ctx, c, "DescribeSnapshots", "snapshots", ids, c.api.DescribeSnapshots, in, &in.NextToken,
		c.eachSnapshot(func(s Snapshot) { found[s.ID] = s }))
}

func (c *Client) describeSnapshotsByID(ctx context.Context, ids []string) (map[string]Snapshot, error) {
	in := &ec2.DescribeSnapshotsInput{SnapshotIds: ids}
	found := map[string]Snapshot{}
	return found, pagesOf(ctx, c, "DescribeSnapshots", "snapshots", ids, c.api.DescribeSnapshots, in, &in.NextToken,
		c.eachSnapshot(func(s Snapshot) { found[s.ID] = s }))
}

// describeSnapshotsNamed finds snapshots by their CSI names, with those that this client
// has just created; see describeVolumesNamed.
func (c *Client) describeSnapshotsNamed(ctx context.Context, names []string) (map[string][]Snapshot, error) {
	in := &ec2.DescribeSnapshotsInput{
		OwnerIds: []string{ownerSelf}, MaxResults: aws.Int32(pageSize),
		Filters: filter("tag:"+SnapshotNameTag, names...),
	}
	found := map[string][]Snapshot{}
	err := pagesOf(ctx, c, "DescribeSnapshots", "names", names, c.api.DescribeSnapshots, in, &in.NextToken,
		c.eachSnapshot(func(s Snapshot) { found[s.Tags[SnapshotNameTag]] = append(found[s.Tags[SnapshotNameTag]], s) }))
	if err != nil {
		return nil, err
	}
	for _, made := range c.memory.recentSnapshots(names) {
		name := made.Tags[SnapshotNameTag]
		if !slices.ContainsFunc(found[name], func(s Snapshot) bool { return s.ID == made.ID }) {
			found[name] = append(found[name], made)
		}
	}
	for _, snapshots := range found {
		slices.SortFunc(snapshots, olderSnapshot)
	}
	return found, nil
}

// ListSnapshots lists the account's own snapshots that carry the driver's tag, of one
// volume or of all if volumeID is "".
func (c *Client) ListSnapshots(ctx context.Context, volumeID string) ([]Snapshot, error) {
	in := &ec2.DescribeSnapshotsInput{OwnerIds: []string{ownerSelf}, Filters: managed(),
		MaxResults: aws.Int32(pageSize)}
	if volumeID != "" {
		in.Filters = append(in.Filters, filter("volume-id", volumeID)...)
	}
	var all []Snapshot
	op := operation{action: "DescribeSnapshots", class: free}
	err := pages(ctx, c, op, c.api.DescribeSnapshots, in, &in.NextToken,
		c.eachSnapshot(func(s Snapshot) { all = append(all, s) }))
	return all, err
}

func (c *Client) describeFastRestores(ctx context.Context, ids []string) (map[string][]FastRestore, error) {
	in := &ec2.DescribeFastSnapshotRestoresInput{Filters: filter("snapshot-id", ids...),
		MaxResults: aws.Int32(filterLimit)}
	found := map[string][]FastRestore{}
	return found, pagesOf(ctx, c, "DescribeFastSnapshotRestores", "snapshots",
		ids, c.api.DescribeFastSnapshotRestores, in, &in.NextToken,
		func(out *ec2.DescribeFastSnapshotRestoresOutput) *string {
			for _, f := range out.FastSnapshotRestores {
				one := toFastRestore(f)
				found[one.SnapshotID] = append(found[one.SnapshotID], one)
			}
			return out.NextToken
		})
}

func (c *Client) describeLocks(ctx context.Context, ids []string) (map[string]Lock, error) {
	in := &ec2.DescribeLockedSnapshotsInput{SnapshotIds: ids}
	found := map[string]Lock{}
	return found, pagesOf(ctx, c, "DescribeLockedSnapshots", "snapshots",
		ids, c.api.DescribeLockedSnapshots, in, &in.NextToken,
		func(out *ec2.DescribeLockedSnapshotsOutput) *string {
			for _, l := range out.Snapshots {
				found[aws.ToString(l.SnapshotId)] = toLock(l)
			}
			return out.NextToken
		})
}

// olderSnapshot orders snapshots by start time.
func olderSnapshot(a, b Snapshot) int {
	return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
}
