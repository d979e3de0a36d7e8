package csidriver

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Creation is how volumes are made.
type Creation struct {
	// Answer changes the answer of CreateVolume, not the volume that is kept:
	// what a driver says of it may be wrong. It may be nil.
	Answer func(*csi.CreateVolumeRequest, *csi.Volume)
	// Strict refuses a repetition that differs in anything but its secrets, as
	// the spec allows.
	Strict bool

	requests map[string]*csi.CreateVolumeRequest // by name, of the volumes there are
}

// CreateVolume is the RPC.
func (d *Driver) CreateVolume(
	ctx context.Context, request *csi.CreateVolumeRequest,
) (*csi.CreateVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	node, name := instanceOf(ctx), request.GetName()
	if node != "" {
		if !allows(request.GetAccessibilityRequirements(), node) {
			return nil, status.Errorf(codes.InvalidArgument, "volume %s is not for node %s", name, node)
		}
		if err := d.checkSource(request.GetVolumeContentSource(), node); err != nil {
			return nil, err
		}
		name += "@" + node
	}
	volume, exists := d.volumes[name]
	if !exists {
		volume = &csi.Volume{
			VolumeId: "id-" + name, CapacityBytes: request.GetCapacityRange().GetRequiredBytes(),
			ContentSource: request.GetVolumeContentSource(), VolumeContext: map[string]string{"made-by": d.Name},
		}
		if node != "" {
			volume.AccessibleTopology = []*csi.Topology{{Segments: map[string]string{TopologyKey: node}}}
		}
		d.volumes[name] = volume
		d.keep(name, request)
	}
	if exists && d.Creation.Strict && !proto.Equal(d.Creation.requests[name], withoutSecrets(request)) {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s exists, made with other arguments", name)
	}
	answer := &csi.Volume{}
	proto.Merge(answer, volume)
	if d.Creation.Answer != nil {
		d.Creation.Answer(request, answer)
	}
	return &csi.CreateVolumeResponse{Volume: answer}, nil
}

// checkSource rejects a copy of what is not on the node of an instance. The caller holds d.mu.
func (d *Driver) checkSource(source *csi.VolumeContentSource, node string) error {
	id := source.GetVolume().GetVolumeId()
	if snapshot := source.GetSnapshot().GetSnapshotId(); snapshot != "" {
		_, made := d.findSnapshot(snapshot)
		id = made.GetSourceVolumeId()
	}
	if source != nil && !onNode(id, node) {
		return status.Errorf(codes.NotFound, "the source is not on node %s", node)
	}
	return nil
}

// onNode reports whether a volume is that of an instance on a node; any is for "".
func onNode(volume, node string) bool { return node == "" || strings.HasSuffix(volume, "@"+node) }

// allows reports whether a volume that is on one node fulfils a requirement.
func allows(requirement *csi.TopologyRequirement, node string) bool {
	isNode := func(t *csi.Topology) bool { return t.GetSegments()[TopologyKey] == node }
	return len(requirement.GetRequisite()) == 0 || slices.ContainsFunc(requirement.GetRequisite(), isNode)
}

func (d *Driver) keep(name string, request *csi.CreateVolumeRequest) {
	if d.Creation.requests == nil {
		d.Creation.requests = map[string]*csi.CreateVolumeRequest{}
	}
	d.Creation.requests[name] = withoutSecrets(request)
}

func withoutSecrets(request *csi.CreateVolumeRequest) *csi.CreateVolumeRequest {
	copied := &csi.CreateVolumeRequest{}
	proto.Merge(copied, request)
	copied.Secrets = nil
	return copied
}

// AddNamedVolume makes a volume as CreateVolume would for a name.
func (d *Driver) AddNamedVolume(name string, size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volumes[name] = &csi.Volume{VolumeId: "id-" + name, CapacityBytes: size}
}

// Volumes returns the IDs of the volumes there are, by name.
func (d *Driver) Volumes() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := map[string]string{}
	for name, volume := range d.volumes {
		ids[name] = volume.GetVolumeId()
	}
	return ids
}

// Request returns what an existing volume was made from, without secrets.
func (d *Driver) Request(name string) *csi.CreateVolumeRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Creation.requests[name]
}

// Volume returns an existing volume as CreateVolume would answer with it.
func (d *Driver) Volume(name string) *csi.Volume {
	d.mu.Lock()
	defer d.mu.Unlock()
	volume := &csi.Volume{}
	if known := d.volumes[name]; known != nil {
		proto.Merge(volume, known)
	}
	return volume
}

// Forget removes a volume and its uses from the driver, as if it was
// removed at the storage system. What is mounted stays mounted.
func (d *Driver) Forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.volumes, func(_ string, v *csi.Volume) bool { return v.GetVolumeId() == id })
	delete(d.attached, id)
	delete(d.staged, id)
	delete(d.published, id)
}
