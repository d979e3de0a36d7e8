package server

import (
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// From CSI to the backend. What these functions rely on has passed message.Check.

func toCapability(c *csi.VolumeCapability) (backend.Capability, error) {
	mode := c.GetAccessMode().GetMode()
	if _, known := csi.VolumeCapability_AccessMode_Mode_name[int32(mode)]; !known {
		return backend.Capability{}, fmt.Errorf("%w: access_mode %d is not known", backend.ErrInvalid, mode)
	}
	mount := c.GetMount()
	return backend.Capability{
		Mode: backend.AccessMode(mode), Block: c.GetBlock() != nil,
		FSType: mount.GetFsType(), MountFlags: mount.GetMountFlags(), MountGroup: mount.GetVolumeMountGroup(),
	}, nil
}

func toCapabilities(list []*csi.VolumeCapability) ([]backend.Capability, error) {
	var capabilities []backend.Capability
	for i, c := range list {
		capability, err := toCapability(c)
		if err != nil {
			return nil, fmt.Errorf("volume_capabilities[%d]: %w", i, err)
		}
		capabilities = append(capabilities, capability)
	}
	return capabilities, nil
}

func toRange(r *csi.CapacityRange) backend.SizeRange {
	return backend.SizeRange{Required: r.GetRequiredBytes(), Limit: r.GetLimitBytes()}
}

func toSource(s *csi.VolumeContentSource) backend.Source {
	return backend.Source{SnapshotID: s.GetSnapshot().GetSnapshotId(), VolumeID: s.GetVolume().GetVolumeId()}
}

func toRequirement(r *csi.TopologyRequirement) *backend.TopologyRequirement {
	if r == nil {
		return nil
	}
	return &backend.TopologyRequirement{Requisite: toTopologies(r.GetRequisite()),
		Preferred: toTopologies(r.GetPreferred())}
}

func toTopologies(list []*csi.Topology) []backend.Topology {
	var topologies []backend.Topology
	for _, t := range list {
		topologies = append(topologies, t.GetSegments())
	}
	return topologies
}

// From the backend to CSI.

func fromVolume(v backend.Volume) *csi.Volume {
	return &csi.Volume{
		VolumeId: v.ID, CapacityBytes: v.Size, VolumeContext: v.Context,
		ContentSource: fromSource(v.Source), AccessibleTopology: fromTopologies(v.Topology),
	}
}

func fromSource(s backend.Source) *csi.VolumeContentSource {
	switch {
	case s.SnapshotID != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.SnapshotID},
		}}
	case s.VolumeID != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: s.VolumeID},
		}}
	}
	return nil
}

func fromTopologies(list []backend.Topology) []*csi.Topology {
	var topologies []*csi.Topology
	for _, t := range list {
		topologies = append(topologies, &csi.Topology{Segments: t})
	}
	return topologies
}

func fromSnapshot(s backend.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: s.ID, SourceVolumeId: s.SourceID, GroupSnapshotId: s.GroupID,
		SizeBytes: s.Size, CreationTime: fromTime(s.Created), ReadyToUse: s.Ready,
		AccessibleTopology: fromTopologies(s.Topology),
	}
}

func fromGroup(g backend.GroupSnapshot) *csi.VolumeGroupSnapshot {
	group := &csi.VolumeGroupSnapshot{GroupSnapshotId: g.ID, CreationTime: fromTime(g.Created), ReadyToUse: g.Ready}
	for _, s := range g.Snapshots {
		// CSI requires the group's ID in each of its members.
		s.GroupID = g.ID
		group.Snapshots = append(group.Snapshots, fromSnapshot(s))
	}
	return group
}

func fromTime(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t) }
