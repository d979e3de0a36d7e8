package cloud

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// smallestPage is the smallest page of EC2; smaller pages are parts of one.
const smallestPage = 5

// position is where a listing continues: in EC2's page that Token begins, after
// Skip items in the order of their IDs. Size is the page's.
type position struct {
	Token string `json:"t,omitempty"`
	Skip  int    `json:"s,omitempty"`
	Size  int32  `json:"n"`
}

func (p position) String() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // three plain fields
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// positionOf reads a token that String made; "" is the start.
func positionOf(token string, limit int) (position, error) {
	if token == "" {
		size := int32(pageSize)
		if limit > 0 {
			size = int32(min(max(limit, smallestPage), pageSize))
		}
		return position{Size: size}, nil
	}
	var p position
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil || p.Skip < 0 || p.Size < smallestPage || p.Size > pageSize {
		return p, &Error{Action: "List", Message: "the paging token is not one of this driver", sentinel: backend.ErrStaleToken}
	}
	return p, nil
}

// ListVolumes lists the volumes that carry the driver's tag: at most limit (0:
// all) after the page that token ends. next is "" at the end. ErrStaleToken.
func (c *Client) ListVolumes(ctx context.Context, token string, limit int) (page []Volume, next string, err error) {
	return list(token, limit, func(p position) ([]Volume, string, error) {
		out, err := call(ctx, c, operation{action: "DescribeVolumes", class: free}, c.api.DescribeVolumes, &ec2.DescribeVolumesInput{
			Filters: managed(), MaxResults: aws.Int32(p.Size), NextToken: unlessZero(p.Token),
		})
		if err != nil {
			return nil, "", err
		}
		volumes := make([]Volume, 0, len(out.Volumes))
		for _, v := range out.Volumes {
			volumes = append(volumes, c.memory.seenVolume(toVolume(v)))
		}
		slices.SortFunc(volumes, func(a, b Volume) int { return strings.Compare(a.ID, b.ID) })
		return volumes, aws.ToString(out.NextToken), nil
	})
}

// ListSnapshots lists the account's own snapshots that carry the driver's tag, like ListVolumes.
func (c *Client) ListSnapshots(ctx context.Context, q SnapshotQuery, token string, limit int) (page []Snapshot, next string, err error) {
	filters := managed()
	if q.VolumeID != "" {
		filters = append(filters, filter("volume-id", q.VolumeID)...)
	}
	return list(token, limit, func(p position) ([]Snapshot, string, error) {
		out, err := call(ctx, c, operation{action: "DescribeSnapshots", class: free}, c.api.DescribeSnapshots, &ec2.DescribeSnapshotsInput{
			OwnerIds: []string{ownerSelf}, Filters: filters, MaxResults: aws.Int32(p.Size), NextToken: unlessZero(p.Token),
		})
		if err != nil {
			return nil, "", err
		}
		var snapshots []Snapshot
		for _, s := range out.Snapshots {
			if one, ok := c.memory.seenSnapshot(toSnapshot(s)); ok {
				snapshots = append(snapshots, one)
			}
		}
		slices.SortFunc(snapshots, func(a, b Snapshot) int { return strings.Compare(a.ID, b.ID) })
		return snapshots, aws.ToString(out.NextToken), nil
	})
}

// managed are the filters for what carries the driver's tag.
func managed() []types.Filter { return filter("tag:"+ManagedTag, "true") }

// list collects up to limit items (0: all) from EC2's pages.
func list[V any](token string, limit int, ask func(position) ([]V, string, error)) (page []V, next string, err error) {
	p, err := positionOf(token, limit)
	if err != nil {
		return nil, "", err
	}
	for {
		items, following, err := ask(p)
		if err != nil {
			return nil, "", err
		}
		items = items[min(p.Skip, len(items)):]
		if limit > 0 && len(page)+len(items) > limit {
			took := limit - len(page)
			p.Skip += took
			return append(page, items[:took]...), p.String(), nil
		}
		page = append(page, items...)
		if following == "" {
			return page, "", nil
		}
		p.Token, p.Skip = following, 0
		if limit > 0 && len(page) == limit {
			return page, p.String(), nil
		}
	}
}
