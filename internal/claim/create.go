package claim

import (
	"fmt"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// Source is what a new volume starts with, found by the caller; at most one
// field is set. Both are the driver's own IDs.
type Source struct {
	VolumeHandle, SnapshotHandle string
}

// Creation is everything a CreateVolumeRequest is made of. Secrets are not
// part of it: they are read anew for each call.
type Creation struct {
	Class Class
	Claim *corev1.PersistentVolumeClaim
	// Modes are those of the driver's controller.
	Modes  Modes
	Source Source
	// Topology is where the volume has to be reachable from; nil for drivers
	// without VOLUME_ACCESSIBILITY_CONSTRAINTS.
	Topology map[string]string
	// ExtraMetadata adds the names of claim and volume to the parameters.
	ExtraMetadata bool
}

// Request builds the CreateVolumeRequest. It depends on nothing but its
// arguments, so that it may be recorded before the call and repeated after a crash.
func (c Creation) Request() (*csi.CreateVolumeRequest, error) {
	size, err := SizeOf(c.Claim)
	if err != nil {
		return nil, err
	}
	if len(c.Claim.Spec.AccessModes) == 0 {
		return nil, fmt.Errorf("%s: spec.accessModes: at least one is needed", Describe(c.Claim))
	}
	use := Use{Block: IsBlock(c.Claim.Spec.VolumeMode), FSType: c.Class.FSType, MountFlags: c.Class.MountOptions}
	capabilities, err := use.Capabilities(c.Modes, c.Claim.Spec.AccessModes)
	if err != nil {
		return nil, fmt.Errorf("%s: spec.accessModes: %w", Describe(c.Claim), err)
	}
	request := &csi.CreateVolumeRequest{
		Name:                VolumeName(c.Claim.UID),
		CapacityRange:       size,
		VolumeCapabilities:  capabilities,
		Parameters:          c.parameters(),
		VolumeContentSource: c.Source.content(),
	}
	if len(c.Topology) > 0 {
		here := []*csi.Topology{{Segments: maps.Clone(c.Topology)}}
		request.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: here, Preferred: here}
	}
	return request, nil
}

func (c Creation) parameters() map[string]string {
	parameters := maps.Clone(c.Class.Parameters)
	if c.ExtraMetadata {
		parameters[ReservedPrefix+"pvc/name"] = c.Claim.Name
		parameters[ReservedPrefix+"pvc/namespace"] = c.Claim.Namespace
		parameters[ReservedPrefix+"pv/name"] = VolumeName(c.Claim.UID)
	}
	return parameters
}

func (s Source) content() *csi.VolumeContentSource {
	switch {
	case s.VolumeHandle != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: s.VolumeHandle},
		}}
	case s.SnapshotHandle != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.SnapshotHandle},
		}}
	}
	return nil
}

// SizeOf is the size a claim asks for, in bytes. Kubernetes itself never sets
// a limit; one that the claim names is passed on.
func SizeOf(pvc *corev1.PersistentVolumeClaim) (*csi.CapacityRange, error) {
	request, found := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	if !found {
		return nil, fmt.Errorf("%s: spec.resources.requests.storage is missing", Describe(pvc))
	}
	size := &csi.CapacityRange{RequiredBytes: request.Value()}
	if size.RequiredBytes <= 0 {
		return nil, fmt.Errorf("%s: spec.resources.requests.storage: %s is not above zero", Describe(pvc), request.String())
	}
	if limit, found := pvc.Spec.Resources.Limits[corev1.ResourceStorage]; found {
		size.LimitBytes = limit.Value()
		if size.LimitBytes < size.RequiredBytes {
			return nil, fmt.Errorf("%s: spec.resources: the limit %s is below the request %s",
				Describe(pvc), limit.String(), request.String())
		}
	}
	return size, nil
}

// Describe names a claim in messages.
func Describe(pvc *corev1.PersistentVolumeClaim) string {
	return fmt.Sprintf("PersistentVolumeClaim %q", pvc.Namespace+"/"+pvc.Name)
}
