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

// Attach is how the driver publishes volumes to nodes and lists them. The zero
// value publishes any volume to any node.
type Attach struct {
	// Nodes are the node IDs that exist; nil means all.
	Nodes []string
	// Context is the publish context of every attachment; nil means one with a device.
	Context map[string]string
	// PageSize is how many volumes a page of ListVolumes has at most; 0 means no limit.
	PageSize int
}

// attachment is how a volume is published to one node.
type attachment struct {
	readonly   bool
	capability *csi.VolumeCapability
}

// compatible reports whether a repeated call asks for the attachment that exists.
// An attachment that SetAttached made has no capability and fits any.
func (a attachment) compatible(wanted attachment) bool {
	return a.capability == nil || a.readonly == wanted.readonly && proto.Equal(a.capability, wanted.capability)
}

// tokenPrefix marks the page tokens of this driver. The last listed volume follows
// it, so that a token stays valid while volumes come and go.
const tokenPrefix = "after/"

// ControllerPublishVolume is the RPC.
func (d *Driver) ControllerPublishVolume(
	_ context.Context, request *csi.ControllerPublishVolumeRequest,
) (*csi.ControllerPublishVolumeResponse, error) {
	id, node := request.GetVolumeId(), request.GetNodeId()
	if id == "" || node == "" || request.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "volume_id, node_id and volume_capability are required")
	}
	if d.Attach.Nodes != nil && !slices.Contains(d.Attach.Nodes, node) {
		return nil, status.Errorf(codes.NotFound, "no node %s", node)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted := attachment{readonly: request.GetReadonly(), capability: request.GetVolumeCapability()}
	if have, published := d.attached[id][node]; published && !have.compatible(wanted) {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is published to %s in another way", id, node)
	}
	if _, here := d.attached[id][node]; !here && len(d.attached[id]) > 0 && singleNode(wanted.capability) {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is published to another node", id)
	}
	d.attach(id, node, wanted)
	if d.Attach.Context != nil {
		return &csi.ControllerPublishVolumeResponse{PublishContext: d.Attach.Context}, nil
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"device": "1"}}, nil
}

func singleNode(capability *csi.VolumeCapability) bool {
	switch capability.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		return true
	}
	return false
}

// ControllerUnpublishVolume is the RPC. Without a node it unpublishes from all.
func (d *Driver) ControllerUnpublishVolume(
	_ context.Context, request *csi.ControllerUnpublishVolumeRequest,
) (*csi.ControllerUnpublishVolumeResponse, error) {
	if request.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id is required")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if request.GetNodeId() == "" {
		delete(d.attached, request.GetVolumeId())
	}
	d.detach(request.GetVolumeId(), request.GetNodeId())
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// ListVolumes is the RPC: the volumes that were created or published, by ID.
func (d *Driver) ListVolumes(ctx context.Context, request *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	after, ours := strings.CutPrefix(request.GetStartingToken(), tokenPrefix)
	if request.GetStartingToken() != "" && !ours {
		return nil, status.Errorf(codes.Aborted, "starting_token %q is none of this driver", request.GetStartingToken())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	volumes := d.byID()
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(volumes)), func(id string) bool { return ours && id <= after || !onNode(id, instanceOf(ctx)) })
	answer := &csi.ListVolumesResponse{}
	if size := d.pageSize(int(request.GetMaxEntries())); size > 0 && len(ids) > size {
		ids = ids[:size]
		answer.NextToken = tokenPrefix + ids[size-1]
	}
	for _, id := range ids {
		answer.Entries = append(answer.Entries, &csi.ListVolumesResponse_Entry{Volume: volumes[id], Status: d.volumeStatus(id)})
	}
	return answer, nil
}

func (d *Driver) byID() map[string]*csi.Volume {
	volumes := map[string]*csi.Volume{}
	for id := range d.attached {
		volumes[id] = &csi.Volume{VolumeId: id}
	}
	for _, volume := range d.volumes {
		volumes[volume.GetVolumeId()] = proto.CloneOf(volume)
	}
	return volumes
}

func (d *Driver) pageSize(asked int) int {
	if d.Attach.PageSize > 0 && (asked == 0 || asked > d.Attach.PageSize) {
		return d.Attach.PageSize
	}
	return asked
}

func (d *Driver) volumeStatus(id string) *csi.ListVolumesResponse_VolumeStatus {
	if !slices.Contains(d.Controller, csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES) {
		return nil
	}
	return &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: slices.Sorted(maps.Keys(d.attached[id]))}
}

// Attachments returns the nodes each volume is published to now.
func (d *Driver) Attachments() map[string][]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	published := map[string][]string{}
	for id, nodes := range d.attached {
		published[id] = slices.Sorted(maps.Keys(nodes))
	}
	return published
}

// SetAttached publishes or unpublishes a volume, as an administrator can at the
// storage system without a call of CSI.
func (d *Driver) SetAttached(volume, node string, attached bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if attached {
		d.attach(volume, node, attachment{})
		return
	}
	d.detach(volume, node)
}

func (d *Driver) attach(volume, node string, as attachment) {
	if d.attached[volume] == nil {
		d.attached[volume] = map[string]attachment{}
	}
	d.attached[volume][node] = as
}

func (d *Driver) detach(volume, node string) {
	delete(d.attached[volume], node)
	if len(d.attached[volume]) == 0 {
		delete(d.attached, volume)
	}
}
