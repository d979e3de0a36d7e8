package cloud

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// pageSize is the largest number of items in one page of a describe.
const pageSize = 500

// about is a describe's operation; several keys are counted, not listed.
func about(action, things string, keys []string) operation {
	op := operation{action: action, class: free, resource: fmt.Sprintf("of %d %s", len(keys), things)}
	if len(keys) == 1 {
		op.resource = "of " + keys[0]
	}
	return op
}

// filter asks for any of the values, each meant literally.
func filter(name string, values ...string) []types.Filter {
	literal := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`)
	escaped := make([]string, len(values))
	for i, v := range values {
		escaped[i] = literal.Replace(v)
	}
	return []types.Filter{{Name: aws.String(name), Values: escaped}}
}

// pages calls ask for each page.
func pages(ask func(token *string) (next *string, err error)) error {
	var token *string
	for {
		next, err := ask(token)
		if err != nil || aws.ToString(next) == "" {
			return err
		}
		token = next
	}
}

// An empty list of IDs or values is not sent at all, and EC2 then describes
// everything; so none of the functions below asks without any.

func (c *Client) describeVolumes(ctx context.Context, ids []string) (map[string]Volume, error) {
	out := map[string]Volume{}
	err := c.volumePages(ctx, about("DescribeVolumes", "volumes", ids),
		&ec2.DescribeVolumesInput{Filters: filter("volume-id", ids...), MaxResults: aws.Int32(pageSize)}, len(ids),
		func(v Volume) { out[v.ID] = v })
	return out, err
}

func (c *Client) describeVolumesByID(ctx context.Context, ids []string) (map[string]Volume, error) {
	return byID(ctx, ids, func(ctx context.Context, ids []string) (map[string]Volume, error) {
		out := map[string]Volume{}
		err := c.volumePages(ctx, about("DescribeVolumes", "volumes", ids),
			&ec2.DescribeVolumesInput{VolumeIds: ids}, len(ids), func(v Volume) { out[v.ID] = v })
		return out, err
	})
}

// describeVolumesNamed finds volumes by the names they were made for. Those
// that this client has just made belong to the answer although tags, the last
// thing to be visible, do not show them yet.
func (c *Client) describeVolumesNamed(ctx context.Context, names []string) (map[string][]Volume, error) {
	out := map[string][]Volume{}
	err := c.volumePages(ctx, about("DescribeVolumes", "names", names),
		&ec2.DescribeVolumesInput{Filters: filter("tag:"+NameTag, names...), MaxResults: aws.Int32(pageSize)}, len(names),
		func(v Volume) { out[v.Tags[NameTag]] = append(out[v.Tags[NameTag]], v) })
	if err != nil {
		return nil, err
	}
	hidden := map[string]Volume{}
	for _, made := range c.memory.recentVolumes(names) {
		if !slices.ContainsFunc(out[made.Tags[NameTag]], func(v Volume) bool { return v.ID == made.ID }) {
			hidden[made.ID] = made
		}
	}
	if len(hidden) > 0 {
		if err := c.addHidden(ctx, hidden, out); err != nil {
			return nil, err
		}
	}
	for _, volumes := range out {
		slices.SortFunc(volumes, olderVolume)
	}
	return out, nil
}

// addHidden adds the volumes that were made and are not found by their names.
func (c *Client) addHidden(ctx context.Context, hidden map[string]Volume, to map[string][]Volume) error {
	ids := make([]string, 0, len(hidden))
	for id := range hidden {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	shown := map[string]Volume{}
	for chunk := range slices.Chunk(ids, filterLimit) {
		part, err := c.describeVolumes(ctx, chunk)
		if err != nil {
			return err
		}
		for id, v := range part {
			shown[id] = v
		}
	}
	for _, id := range ids {
		name := hidden[id].Tags[NameTag]
		v, ok := shown[id]
		if !ok {
			v = hidden[id]
		}
		to[name] = append(to[name], v)
	}
	return nil
}

// volumePages describes volumes; keys is how many are asked for.
func (c *Client) volumePages(ctx context.Context, op operation, in *ec2.DescribeVolumesInput, keys int, each func(Volume)) error {
	if keys == 0 {
		return nil
	}
	return pages(func(token *string) (*string, error) {
		in.NextToken = token
		out, err := call(ctx, c, op, c.api.DescribeVolumes, in)
		if err != nil {
			return nil, err
		}
		for _, v := range out.Volumes {
			each(c.memory.seenVolume(toVolume(v)))
		}
		return out.NextToken, nil
	})
}

func (c *Client) describeInstances(ctx context.Context, ids []string) (map[string]Instance, error) {
	return c.instancePages(ctx, about("DescribeInstances", "instances", ids),
		&ec2.DescribeInstancesInput{Filters: filter("instance-id", ids...), MaxResults: aws.Int32(pageSize)}, len(ids))
}

func (c *Client) describeInstancesByID(ctx context.Context, ids []string) (map[string]Instance, error) {
	return byID(ctx, ids, func(ctx context.Context, ids []string) (map[string]Instance, error) {
		return c.instancePages(ctx, about("DescribeInstances", "instances", ids),
			&ec2.DescribeInstancesInput{InstanceIds: ids}, len(ids))
	})
}

func (c *Client) instancePages(ctx context.Context, op operation, in *ec2.DescribeInstancesInput, keys int) (map[string]Instance, error) {
	found := map[string]Instance{}
	if keys == 0 {
		return found, nil
	}
	return found, pages(func(token *string) (*string, error) {
		in.NextToken = token
		out, err := call(ctx, c, op, c.api.DescribeInstances, in)
		if err != nil {
			return nil, err
		}
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				instance := toInstance(i)
				found[instance.ID] = instance
			}
		}
		return out.NextToken, nil
	})
}

func (c *Client) describeInstanceTypes(ctx context.Context, names []string) (map[string]InstanceType, error) {
	found := map[string]InstanceType{}
	if len(names) == 0 {
		return found, nil
	}
	in := &ec2.DescribeInstanceTypesInput{Filters: filter("instance-type", names...)}
	return found, pages(func(token *string) (*string, error) {
		in.NextToken = token
		out, err := call(ctx, c, about("DescribeInstanceTypes", "types", names), c.api.DescribeInstanceTypes, in)
		if err != nil {
			return nil, err
		}
		for _, t := range out.InstanceTypes {
			one := toInstanceType(t)
			found[one.Name] = one
		}
		return out.NextToken, nil
	})
}

func (c *Client) describeModifications(ctx context.Context, ids []string) (map[string]Modification, error) {
	found := map[string]Modification{}
	if len(ids) == 0 {
		return found, nil
	}
	in := &ec2.DescribeVolumesModificationsInput{Filters: filter("volume-id", ids...), MaxResults: aws.Int32(pageSize)}
	err := pages(func(token *string) (*string, error) {
		in.NextToken = token
		out, err := call(ctx, c, about("DescribeVolumesModifications", "volumes", ids), c.api.DescribeVolumesModifications, in)
		if err != nil {
			return nil, err
		}
		for _, m := range out.VolumesModifications {
			one := toModification(m)
			if known, has := found[one.VolumeID]; !has || one.Start.After(known.Start) {
				found[one.VolumeID] = one
			}
		}
		return out.NextToken, nil
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
	return byID(ctx, ids, func(ctx context.Context, ids []string) (map[string]Status, error) {
		found := map[string]Status{}
		in := &ec2.DescribeVolumeStatusInput{VolumeIds: ids}
		return found, pages(func(token *string) (*string, error) {
			in.NextToken = token
			out, err := call(ctx, c, about("DescribeVolumeStatus", "volumes", ids), c.api.DescribeVolumeStatus, in)
			if err != nil {
				return nil, err
			}
			for _, s := range out.VolumeStatuses {
				one := toStatus(s)
				found[one.VolumeID] = one
			}
			return out.NextToken, nil
		})
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

// olderVolume orders volumes by their creation.
func olderVolume(a, b Volume) int {
	if order := a.Created.Compare(b.Created); order != 0 {
		return order
	}
	return strings.Compare(a.ID, b.ID)
}
