package csidriver

import (
	"context"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Changes is how the driver expands and modifies volumes. The zero value grows
// a volume to what is asked for, wants an expansion on the node after it, and
// takes any parameters.
type Changes struct {
	// NoNodeExpansion: an expanded volume needs nothing on the node.
	NoNodeExpansion bool
	// Answer is the size that ControllerExpandVolume returns, also if it is wrong.
	Answer func(size int64) int64
	// Offline refuses to expand a volume that is published to a node.
	Offline bool
	// Refused are the mutable parameters that no volume can have.
	Refused []string

	modified map[string]map[string]string // by volume ID
}

// ControllerExpandVolume is the RPC.
func (d *Driver) ControllerExpandVolume(
	ctx context.Context, request *csi.ControllerExpandVolumeRequest,
) (*csi.ControllerExpandVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	volume := d.findVolume(request.GetVolumeId())
	if volume == nil || !onNode(volume.GetVolumeId(), instanceOf(ctx)) {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	if d.Changes.Offline && len(d.attached[volume.GetVolumeId()]) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is published to a node", volume.GetVolumeId())
	}
	volume.CapacityBytes = max(volume.GetCapacityBytes(), request.GetCapacityRange().GetRequiredBytes())
	said := volume.GetCapacityBytes()
	if d.Changes.Answer != nil {
		said = d.Changes.Answer(said)
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: said, NodeExpansionRequired: !d.Changes.NoNodeExpansion}, nil
}

// ControllerModifyVolume is the RPC. The capability MODIFY_VOLUME is not
// announced unless a test adds it.
func (d *Driver) ControllerModifyVolume(
	ctx context.Context, request *csi.ControllerModifyVolumeRequest,
) (*csi.ControllerModifyVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.findVolume(request.GetVolumeId()) == nil || !onNode(request.GetVolumeId(), instanceOf(ctx)) {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	for _, refused := range d.Changes.Refused {
		if _, asked := request.GetMutableParameters()[refused]; asked {
			return nil, status.Errorf(codes.InvalidArgument, "parameter %s is none of this driver", refused)
		}
	}
	if d.Changes.modified == nil {
		d.Changes.modified = map[string]map[string]string{}
	}
	d.Changes.modified[request.GetVolumeId()] = maps.Clone(request.GetMutableParameters())
	return &csi.ControllerModifyVolumeResponse{}, nil
}

// AddVolume is a volume that was made before the test, of a size in bytes.
func (d *Driver) AddVolume(id string, size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volumes[id] = &csi.Volume{VolumeId: id, CapacityBytes: size}
}

// Size returns the size of a volume in bytes; 0 if it does not exist.
func (d *Driver) Size(id string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.findVolume(id).GetCapacityBytes()
}

// Modified are the mutable parameters that a volume got last.
func (d *Driver) Modified(id string) map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.Changes.modified[id])
}

// findVolume finds a volume by its ID, not its name; nil when there is none.
func (d *Driver) findVolume(id string) *csi.Volume {
	for _, volume := range d.volumes {
		if volume.GetVolumeId() == id {
			return volume
		}
	}
	return nil
}
