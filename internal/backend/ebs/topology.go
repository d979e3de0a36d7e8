package ebs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// Segments of topology: where a volume is, and where it may be.
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

// place is where a volume is to be made. A zone can be named in two ways.
type place struct {
	zone, zoneID, outpostARN string
}

// placeOf reads one topology; the zero place when it names no zone. Two keys
// for zones that disagree are ErrInvalid.
func placeOf(t backend.Topology) (place, error) {
	zone, own := t[zoneKey], t[zoneKeyOwn]
	if zone != "" && own != "" && zone != own {
		return place{}, fmt.Errorf("%w: accessibility_requirements: %s is %q and %s is %q; they must be the same",
			backend.ErrInvalid, zoneKey, zone, zoneKeyOwn, own)
	}
	if zone == "" {
		zone = own
	}
	return place{zone: zone, zoneID: t[zoneIDKey], outpostARN: outpostOf(t)}, nil
}

func outpostOf(t backend.Topology) string {
	partition, region, account, outpost := t[partitionKey], t[regionKey], t[accountKey], t[outpostKey]
	if partition == "" || region == "" || account == "" || outpost == "" {
		return ""
	}
	return fmt.Sprintf("arn:%s:outposts:%s:%s:outpost/%s", partition, region, account, outpost)
}

func (p place) named() bool { return p.zone != "" || p.zoneID != "" }

// has reports whether what is at other is at p, as far as both say.
func (p place) has(other place) bool {
	if p.outpostARN != "" && p.outpostARN != other.outpostARN {
		return false
	}
	if p.zone != "" && other.zone != "" {
		return p.zone == other.zone
	}
	return p.zoneID != "" && p.zoneID == other.zoneID
}

// places reads a list of topologies and leaves out those without a zone.
func places(topologies []backend.Topology) ([]place, error) {
	var named []place
	for _, t := range topologies {
		p, err := placeOf(t)
		if err != nil {
			return nil, err
		}
		if p.named() {
			named = append(named, p)
		}
	}
	return named, nil
}

// choosePlace picks the zone of a new volume: the first preferred, else the
// first requisite, else the region's first.
func (c *Controller) choosePlace(ctx context.Context, r *backend.TopologyRequirement) (place, error) {
	if r == nil {
		r = &backend.TopologyRequirement{}
	}
	preferred, err := places(r.Preferred)
	if err != nil {
		return place{}, err
	}
	requisite, err := places(r.Requisite)
	if err != nil {
		return place{}, err
	}
	switch {
	case len(preferred) == 0 && len(requisite) == 0:
		return c.anyPlace(ctx)
	case len(preferred) == 0:
		return c.checkPlace(ctx, requisite[0])
	case len(requisite) == 0:
		return c.checkPlace(ctx, preferred[0])
	}
	i := slices.IndexFunc(preferred, func(p place) bool {
		return slices.ContainsFunc(requisite, func(r place) bool { return r.has(p) })
	})
	if i < 0 {
		return place{}, fmt.Errorf("%w: accessibility_requirements: no preferred topology is one of the requisite ones", backend.ErrInvalid)
	}
	return c.checkPlace(ctx, preferred[i])
}

// checkPlace refuses a zone and a zone ID that are not of one zone.
func (c *Controller) checkPlace(ctx context.Context, p place) (place, error) {
	if p.zone == "" || p.zoneID == "" {
		return p, nil
	}
	zones, err := c.cloud.Zones(ctx)
	if err != nil {
		return place{}, fmt.Errorf("look up zone %s: %w", p.zone, err)
	}
	for _, zone := range zones {
		if zone.Name == p.zone && zone.ID == p.zoneID {
			return p, nil
		}
	}
	return place{}, fmt.Errorf("%w: accessibility_requirements: zone %s is not the zone with ID %s", backend.ErrInvalid, p.zone, p.zoneID)
}

// anyPlace is the first zone in the order of names, so that a repeat asks for
// the same one.
func (c *Controller) anyPlace(ctx context.Context) (place, error) {
	zones, err := c.cloud.Zones(ctx)
	if err != nil {
		return place{}, fmt.Errorf("choose a zone: %w", err)
	}
	var names []string
	for _, zone := range zones {
		if zone.State == "available" && (zone.Type == "" || zone.Type == "availability-zone") {
			names = append(names, zone.Name)
		}
	}
	if len(names) == 0 {
		return place{}, fmt.Errorf("%w: the region has no zone that is available; name one", backend.ErrPrecondition)
	}
	return place{zone: slices.Min(names)}, nil
}

// whereIs is the place of a volume that exists.
func whereIs(v cloud.Volume) place {
	return place{zone: v.Zone, zoneID: v.ZoneID, outpostARN: v.OutpostARN}
}

// reachable reports whether a place is one of the requisite ones, or nothing is
// required.
func reachable(at place, r *backend.TopologyRequirement) (bool, error) {
	if r == nil {
		return true, nil
	}
	requisite, err := places(r.Requisite)
	if err != nil || len(requisite) == 0 {
		return err == nil, err
	}
	return slices.ContainsFunc(requisite, func(p place) bool { return p.has(at) }), nil
}

// segments are the topology of a volume: as of the AWS EBS CSI driver, the
// zone's common key alone, so that a node which is only planned fits too.
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
