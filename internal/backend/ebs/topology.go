package ebs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// Keys of topologies.
const (
	zoneKey    = "topology.kubernetes.io/zone"
	zoneKeyOwn = "topology.ebs.csi.aws.com/zone" // of older PVs
	zoneIDKey  = "topology.k8s.aws/zone-id"      // in requirements only
	// An Outpost's ARN in parts.
	outpostKey   = "topology.ebs.csi.aws.com/outpost-id"
	partitionKey = "topology.ebs.csi.aws.com/partition"
	accountKey   = "topology.ebs.csi.aws.com/account-id"
	regionKey    = "topology.ebs.csi.aws.com/region"
)

// location is the zone of a volume, by its name or its ID, and its Outpost.
type location struct {
	zone, zoneID, outpostARN string
}

// locationOf reads a topology; it returns the zero location if the topology names no
// zone. Two keys with different zones are ErrInvalid.
func locationOf(t backend.Topology) (location, error) {
	zone, own := t[zoneKey], t[zoneKeyOwn]
	if zone != "" && own != "" && zone != own {
		return location{}, fmt.Errorf("%w: accessibility_requirements: %s is %q and %s is %q; they must be the same",
			backend.ErrInvalid, zoneKey, zone, zoneKeyOwn, own)
	}
	if zone == "" {
		zone = own
	}
	return location{zone: zone, zoneID: t[zoneIDKey], outpostARN: outpostOf(t)}, nil
}

func outpostOf(t backend.Topology) string {
	partition, region, account, outpost := t[partitionKey], t[regionKey], t[accountKey], t[outpostKey]
	if partition == "" || region == "" || account == "" || outpost == "" {
		return ""
	}
	return fmt.Sprintf("arn:%s:outposts:%s:%s:outpost/%s", partition, region, account, outpost)
}

func (p location) named() bool { return p.zone != "" || p.zoneID != "" }

// has reports whether a volume at other is at p, by the fields that both have.
func (p location) has(other location) bool {
	if p.outpostARN != "" && p.outpostARN != other.outpostARN {
		return false
	}
	if p.zone != "" && other.zone != "" {
		return p.zone == other.zone
	}
	return p.zoneID != "" && p.zoneID == other.zoneID
}

// locations reads a list of topologies and omits those without a zone.
func locations(topologies []backend.Topology) ([]location, error) {
	var named []location
	for _, t := range topologies {
		p, err := locationOf(t)
		if err != nil {
			return nil, err
		}
		if p.named() {
			named = append(named, p)
		}
	}
	return named, nil
}

// chooseLocation picks the zone of a new volume: the first preferred, else the
// first requisite, else the region's first.
func (c *Controller) chooseLocation(ctx context.Context, r *backend.TopologyRequirement) (location, error) {
	if r == nil {
		r = &backend.TopologyRequirement{}
	}
	preferred, err := locations(r.Preferred)
	if err != nil {
		return location{}, err
	}
	requisite, err := locations(r.Requisite)
	if err != nil {
		return location{}, err
	}
	switch {
	case len(preferred) == 0 && len(requisite) == 0:
		return c.anyZone(ctx)
	case len(preferred) == 0:
		return c.checkLocation(ctx, requisite[0])
	case len(requisite) == 0:
		return c.checkLocation(ctx, preferred[0])
	}
	i := slices.IndexFunc(preferred, func(p location) bool {
		return slices.ContainsFunc(requisite, func(r location) bool { return r.has(p) })
	})
	if i < 0 {
		return location{}, fmt.Errorf("%w: accessibility_requirements: no preferred topology is one of the requisite ones", backend.ErrInvalid)
	}
	return c.checkLocation(ctx, preferred[i])
}

// checkLocation rejects a zone name and a zone ID of different zones.
func (c *Controller) checkLocation(ctx context.Context, p location) (location, error) {
	if p.zone == "" || p.zoneID == "" {
		return p, nil
	}
	zones, err := c.cloud.Zones(ctx)
	if err != nil {
		return location{}, fmt.Errorf("look up zone %s: %w", p.zone, err)
	}
	for _, zone := range zones {
		if zone.Name == p.zone && zone.ID == p.zoneID {
			return p, nil
		}
	}
	return location{}, fmt.Errorf("%w: accessibility_requirements: zone %s is not the zone with ID %s",
		backend.ErrInvalid, p.zone, p.zoneID)
}

// anyZone is the first zone in the order of names, so that a repeat requests the same
// one.
func (c *Controller) anyZone(ctx context.Context) (location, error) {
	zones, err := c.cloud.Zones(ctx)
	if err != nil {
		return location{}, fmt.Errorf("choose a zone: %w", err)
	}
	var names []string
	for _, zone := range zones {
		if zone.State == "available" && (zone.Type == "" || zone.Type == "availability-zone") {
			names = append(names, zone.Name)
		}
	}
	if len(names) == 0 {
		return location{}, fmt.Errorf("%w: the region has no available zone; name one", backend.ErrPrecondition)
	}
	return location{zone: slices.Min(names)}, nil
}

// locationOfVolume is the location of a volume that exists.
func locationOfVolume(v cloud.Volume) location {
	return location{zone: v.Zone, zoneID: v.ZoneID, outpostARN: v.OutpostARN}
}

// reachable reports whether a location is one of the requisite ones, or there are no
// requisite ones.
func reachable(at location, r *backend.TopologyRequirement) (bool, error) {
	if r == nil {
		return true, nil
	}
	requisite, err := locations(r.Requisite)
	if err != nil || len(requisite) == 0 {
		return err == nil, err
	}
	return slices.ContainsFunc(requisite, func(p location) bool { return p.has(at) }), nil
}

// segments are the topology of a volume. As in the AWS EBS CSI driver, they have only the
// well-known key of the zone, so that an autoscaler's template of a node matches too.
func segments(v cloud.Volume) []backend.Topology {
	if v.Zone == "" {
		return nil
	}
	t := backend.Topology{zoneKey: v.Zone}
	// arn:PARTITION:outposts:REGION:ACCOUNT:outpost/ID
	if parts := strings.SplitN(v.OutpostARN, ":", 6); len(parts) == 6 {
		t[partitionKey], t[regionKey], t[accountKey] = parts[1], parts[3], parts[4]
		t[outpostKey] = strings.TrimPrefix(parts[5], "outpost/")
	}
	return []backend.Topology{t}
}
