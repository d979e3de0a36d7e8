package cloud

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// pageSize is the largest number of items in one page of a describe.
const pageSize = 500

// mostPages bounds a describe: with pages of one item it still reads a large account. An
// endpoint that never ends a list must neither keep its caller nor fill the memory.
const mostPages = 10_000

// filter matches any of the values, in which wildcards are escaped.
func filter(name string, values ...string) []types.Filter {
	literal := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`)
	escaped := make([]string, len(values))
	for i, v := range values {
		escaped[i] = literal.Replace(v)
	}
	return []types.Filter{{Name: aws.String(name), Values: escaped}}
}

// pages does a describe until read has read all its pages. token is the input's token,
// and read returns that of the next page.
func pages[I, O any](
	ctx context.Context, c *Client, op operation, do send[I, O], in *I, token **string, read func(*O) *string,
) error {
	for range mostPages {
		out, err := call(ctx, c, op, do, in)
		if err != nil {
			return err
		}
		before := aws.ToString(*token)
		switch *token = read(out); aws.ToString(*token) {
		case "":
			return nil
		case before:
			return endlessError(op, "EC2 names the same page again")
		}
	}
	return endlessError(op, fmt.Sprintf("the list has more than %d pages", mostPages))
}

func endlessError(op operation, message string) error {
	return &Error{Action: op.action, resource: op.resource, sentinel: backend.ErrUnavailable,
		Message: message + ": check what answers at the endpoint of EC2"}
}

// pagesOf is pages for a describe by keys; an error counts several, and names one. EC2
// takes an empty list of keys for everything, so that is not sent.
func pagesOf[I, O any](
	ctx context.Context, c *Client, action, things string, keys []string,
	do send[I, O], in *I, token **string, read func(*O) *string,
) error {
	if len(keys) == 0 {
		return nil
	}
	op := operation{action: action, class: free, resource: fmt.Sprintf("of %d %s", len(keys), things)}
	if len(keys) == 1 {
		op.resource = "of " + keys[0]
	}
	return pages(ctx, c, op, do, in, token, read)
}

// eachVolume reads a page of volumes.
func (c *Client) eachVolume(do func(Volume)) func(*ec2.DescribeVolumesOutput) *string {
	return func(out *ec2.DescribeVolumesOutput) *string {
		for _, v := range out.Volumes {
			do(c.memory.seenVolume(toVolume(v)))
		}
		return out.NextToken
	}
}

func (c *Client) describeVolumes(ctx context.Context, ids []string) (map[string]Volume, error) {
	in := &ec2.DescribeVolumesInput{Filters: filter("volume-id", ids...), MaxResults: aws.Int32(pageSize)}
	found := map[string]Volume{}
	return found, pagesOf(ctx, c, "DescribeVolumes", "volumes", ids, c.api.DescribeVolumes, in, &in.NextToken,
		c.eachVolume(func(v Volume) { found[v.ID] = v }))
}

func (c *Client) describeVolumesByID(ctx context.Context, ids []string) (map[string]Volume, error) {
	in := &ec2.DescribeVolumesInput{VolumeIds: ids}
	found := map[string]Volume{}
	return found, pagesOf(ctx, c, "DescribeVolumes", "volumes", ids, c.api.DescribeVolumes, in, &in.NextToken,
		c.eachVolume(func(v Volume) { found[v.ID] = v }))
}

// describeVolumesNamed finds volumes by their CSI names. The result includes the volumes
// that this client has just created, although EC2 shows a new volume by its ID before it
// finds it by its tags.
func (c *Client) describeVolumesNamed(ctx context.Context, names []string) (map[string][]Volume, error) {
	in := &ec2.DescribeVolumesInput{Filters: filter("tag:"+NameTag, names...), MaxResults: aws.Int32(pageSize)}
	found := map[string][]Volume{}
	err := pagesOf(ctx, c, "DescribeVolumes", "names", names, c.api.DescribeVolumes, in, &in.NextToken,
		c.eachVolume(func(v Volume) { found[v.Tags[NameTag]] = append(found[v.Tags[NameTag]], v) }))
	if err != nil {
		return nil, err
	}
	if err := c.addHidden(ctx, names, found); err != nil {
		return nil, err
	}
	for _, volumes := range found {
		slices.SortFunc(volumes, olderVolume)
	}
	return found, nil
}

// addHidden adds the volumes that this client has just made and a describe by their
// names does not show.
func (c *Client) addHidden(ctx context.Context, names []string, found map[string][]Volume) error {
	hidden := map[string]Volume{}
	for _, made := range c.memory.recentVolumes(names) {
		if !slices.ContainsFunc(found[made.Tags[NameTag]], func(v Volume) bool { return v.ID == made.ID }) {
			hidden[made.ID] = made
		}
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(hidden)), filterLimit) {
		shown, err := c.describeVolumes(ctx, ids)
		if err != nil {
			return err
		}
		for _, id := range ids {
			v, ok := shown[id]
			if !ok {
				v = hidden[id]
			}
			name := hidden[id].Tags[NameTag]
			found[name] = append(found[name], v)
		}
	}
	return nil
}

// ListVolumes lists the volumes that carry the driver's tag.
func (c *Client) ListVolumes(ctx context.Context) ([]Volume, error) {
	in := &ec2.DescribeVolumesInput{Filters: managed(), MaxResults: aws.Int32(pageSize)}
	var all []Volume
	op := operation{action: "DescribeVolumes", class: free}
	err := pages(ctx, c, op, c.api.DescribeVolumes, in, &in.NextToken,
		c.eachVolume(func(v Volume) { all = append(all, v) }))
	return all, err
}

// managed is the filter for resources that carry the driver's tag.
func managed() []types.Filter { return filter("tag:"+ManagedTag, "true") }

func readInstances(into map[string]Instance) func(*ec2.DescribeInstancesOutput) *string {
	return func(out *ec2.DescribeInstancesOutput) *string {
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				instance := toInstance(i)
				into[instance.ID] = instance
			}
		}
		return out.NextToken
	}
}

func (c *Client) describeInstances(ctx context.Context, ids []string) (map[string]Instance, error) {
	in := &ec2.DescribeInstancesInput{Filters: filter("instance-id", ids...), MaxResults: aws.Int32(pageSize)}
	found := map[string]Instance{}
	return found, pagesOf(ctx, c, "DescribeInstances", "instances",
		ids, c.api.DescribeInstances, in, &in.NextToken, readInstances(found))
}

func (c *Client) describeInstancesByID(ctx context.Context, ids []string) (map[string]Instance, error) {
	in := &ec2.DescribeInstancesInput{InstanceIds: ids}
	found := map[string]Instance{}
	return found, pagesOf(ctx, c, "DescribeInstances", "instances",
		ids, c.api.DescribeInstances, in, &in.NextToken, readInstances(found))
}

func (c *Client) describeInstanceTypes(ctx context.Context, names []string) (map[string]InstanceType, error) {
	in := &ec2.DescribeInstanceTypesInput{Filters: filter("instance-type", names...)}
	found := map[string]InstanceType{}
	return found, pagesOf(ctx, c, "DescribeInstanceTypes", "types",
		names, c.api.DescribeInstanceTypes, in, &in.NextToken,
		func(out *ec2.DescribeInstanceTypesOutput) *string {
			for _, t := range out.InstanceTypes {
				found[string(t.InstanceType)] = toInstanceType(t)
			}
			return out.NextToken
		})
}

func (c *Client) describeModifications(ctx context.Context, ids []string) (map[string]Modification, error) {
	in := &ec2.DescribeVolumesModificationsInput{Filters: filter("volume-id", ids...), MaxResults: aws.Int32(pageSize)}
	found := map[string]Modification{}
	err := pagesOf(ctx, c, "DescribeVolumesModifications", "volumes",
		ids, c.api.DescribeVolumesModifications, in, &in.NextToken,
		func(out *ec2.DescribeVolumesModificationsOutput) *string {
			for _, m := range out.VolumesModifications {
				one := toModification(m)
				if known, has := found[one.VolumeID]; !has || one.Start.After(known.Start) {
					found[one.VolumeID] = one
				}
			}
			return out.NextToken
		})
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		seen, has := found[id]
		if m, ok := c.memory.seenChange(id, seen, has); ok {
			found[id] = m
		}
	}
	return found, nil
}

func (c *Client) describeStatuses(ctx context.Context, ids []string) (map[string]Status, error) {
	in := &ec2.DescribeVolumeStatusInput{VolumeIds: ids}
	found := map[string]Status{}
	return found, pagesOf(ctx, c, "DescribeVolumeStatus", "volumes", ids, c.api.DescribeVolumeStatus, in, &in.NextToken,
		func(out *ec2.DescribeVolumeStatusOutput) *string {
			for _, s := range out.VolumeStatuses {
				found[aws.ToString(s.VolumeId)] = toStatus(s)
			}
			return out.NextToken
		})
}

func (c *Client) describeZones(ctx context.Context, _ []string) (map[string][]Zone, error) {
	out, err := call(ctx, c, operation{action: "DescribeAvailabilityZones", class: free},
		c.api.DescribeAvailabilityZones, &ec2.DescribeAvailabilityZonesInput{})
	if err != nil {
		return nil, err
	}
	zones := make([]Zone, 0, len(out.AvailabilityZones))
	for _, z := range out.AvailabilityZones {
		zones = append(zones, toZone(z))
	}
	slices.SortFunc(zones, func(a, b Zone) int { return strings.Compare(a.Name, b.Name) })
	return map[string][]Zone{everyZone: zones}, nil
}

// olderVolume orders volumes by creation time.
func olderVolume(a, b Volume) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
}
