package csidriver

import (
	"context"
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Groups is how the driver takes snapshots of several volumes at once; each of
// them follows Snapshots. Set it before the driver serves.
type Groups struct {
	// Offered are the capabilities of the group controller; New sets them all.
	Offered []csi.GroupControllerServiceCapability_RPC_Type
	// Answer changes the answer about a group, for a driver that answers nonsense.
	Answer func(*csi.VolumeGroupSnapshot)
	// Strict refuses a repetition that differs in its parameters, as the spec allows.
	Strict bool

	byName map[string]*groupState
}

type groupState struct {
	id         string
	members    []string // names of snapshots
	sources    []string
	parameters map[string]string
}

// GroupControllerGetCapabilities is the RPC.
func (d *Driver) GroupControllerGetCapabilities(
	context.Context, *csi.GroupControllerGetCapabilitiesRequest,
) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	answer := &csi.GroupControllerGetCapabilitiesResponse{}
	for _, kind := range d.Groups.Offered {
		answer.Capabilities = append(answer.Capabilities, &csi.GroupControllerServiceCapability{
			Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{Type: kind}},
		})
	}
	return answer, nil
}

// CreateVolumeGroupSnapshot is the RPC.
func (d *Driver) CreateVolumeGroupSnapshot(
	_ context.Context, request *csi.CreateVolumeGroupSnapshotRequest,
) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	if request.GetName() == "" || len(request.GetSourceVolumeIds()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "name and source_volume_ids are required")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	group, exists := d.Groups.byName[request.GetName()]
	if exists && !slices.Equal(group.sources, request.GetSourceVolumeIds()) {
		return nil, status.Errorf(codes.AlreadyExists, "group %s is of other volumes", request.GetName())
	}
	if exists && d.Groups.Strict && !maps.Equal(group.parameters, request.GetParameters()) {
		return nil, status.Errorf(codes.AlreadyExists, "group %s exists, taken with other parameters", request.GetName())
	}
	if !exists {
		group = d.createGroup(request.GetName(), request.GetSourceVolumeIds())
		group.parameters = request.GetParameters()
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: d.answerForGroup(group)}, nil
}

func (d *Driver) createGroup(name string, sources []string) *groupState {
	group := &groupState{id: "id-" + name, sources: slices.Clone(sources)}
	for _, source := range sources {
		member := name + "-" + source
		d.createSnapshot(member, source, group.id)
		group.members = append(group.members, member)
	}
	if d.Groups.byName == nil {
		d.Groups.byName = map[string]*groupState{}
	}
	d.Groups.byName[name] = group
	return group
}

func (d *Driver) answerForGroup(group *groupState) *csi.VolumeGroupSnapshot {
	answer := &csi.VolumeGroupSnapshot{GroupSnapshotId: group.id, ReadyToUse: true, CreationTime: timestamppb.New(SnapshotTime())}
	if d.Snapshots.NoTime {
		answer.CreationTime = nil
	}
	for _, member := range group.members {
		snapshot := d.answerFor(d.Snapshots.byName[member])
		answer.ReadyToUse = answer.GetReadyToUse() && snapshot.GetReadyToUse()
		answer.Snapshots = append(answer.Snapshots, snapshot)
	}
	if d.Groups.Answer != nil {
		d.Groups.Answer(answer)
	}
	return answer
}

// GetVolumeGroupSnapshot is the RPC. The IDs of the members must be right.
func (d *Driver) GetVolumeGroupSnapshot(
	_ context.Context, request *csi.GetVolumeGroupSnapshotRequest,
) (*csi.GetVolumeGroupSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, group := d.findGroup(request.GetGroupSnapshotId())
	if group == nil {
		return nil, status.Errorf(codes.NotFound, "no group snapshot %s", request.GetGroupSnapshotId())
	}
	if err := d.checkMembers(group, request.GetSnapshotIds()); err != nil {
		return nil, err
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: d.answerForGroup(group)}, nil
}

// DeleteVolumeGroupSnapshot is the RPC. The IDs of the members must be right.
func (d *Driver) DeleteVolumeGroupSnapshot(
	_ context.Context, request *csi.DeleteVolumeGroupSnapshotRequest,
) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name, group := d.findGroup(request.GetGroupSnapshotId())
	if group == nil {
		return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
	}
	if err := d.checkMembers(group, request.GetSnapshotIds()); err != nil {
		return nil, err
	}
	for _, member := range group.members {
		delete(d.Snapshots.byName, member)
	}
	delete(d.Groups.byName, name)
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

func (d *Driver) findGroup(id string) (name string, group *groupState) {
	for name, group := range d.Groups.byName {
		if group.id == id {
			return name, group
		}
	}
	return "", nil
}

func (d *Driver) checkMembers(group *groupState, ids []string) error {
	var members []string
	for _, member := range group.members {
		members = append(members, d.Snapshots.byName[member].snapshot.GetSnapshotId())
	}
	if slices.Equal(slices.Sorted(slices.Values(members)), slices.Sorted(slices.Values(ids))) {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "the snapshots of group %s are %v, not %v", group.id, members, ids)
}

// GroupsLeft returns the IDs of the group snapshots that exist, sorted.
func (d *Driver) GroupsLeft() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []string
	for _, group := range d.Groups.byName {
		ids = append(ids, group.id)
	}
	slices.Sort(ids)
	return ids
}

// AddGroup creates a group snapshot without a call, as an administrator does, and returns
// its ID and those of its members.
func (d *Driver) AddGroup(name string, sources ...string) (id string, members []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	group := d.createGroup(name, sources)
	for _, member := range slices.Sorted(maps.Keys(d.Snapshots.byName)) {
		if snapshot := d.Snapshots.byName[member].snapshot; snapshot.GetGroupSnapshotId() == group.id {
			members = append(members, snapshot.GetSnapshotId())
		}
	}
	return group.id, members
}
