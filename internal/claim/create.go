package claim

import (
	"fmt"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// Source is the volume or the snapshot that a new volume copies, by the driver's own ID.
// At most one field is set.
type Source struct {
	VolumeHandle, SnapshotHandle string
}

// Creation is everything a CreateVolumeRequest is made of. Secrets are not
// part of it: they are read again for each call.
type Creation struct {
	Class Class
	Claim *corev1.PersistentVolumeClaim
	// Modes are those of the driver's controller.
	Modes  Modes
	Source Source
	// Topology is where the volume has to be reachable from; nil for drivers
	// without VOLUME_ACCESSIBILITY_CONSTRAINTS.
	Topology *csi.TopologyRequirement
	// ExtraMetadata adds the names of claim and volume to the parameters.
	ExtraMetadata bool
	// VolumeName replaces VolumeName(claim UID) if set.
	VolumeName string
	// MutableParameters are those of the claim's VolumeAttributesClass.
	MutableParameters map[string]string
	// NoLimit ignores the limit that a claim may name in addition to its request, as
	// external-provisioner does.
	NoLimit bool
}

// Name is the name of the volume, and of its PersistentVolume.
func (c Creation) Name() string {
	if c.VolumeName != "" {
		return c.VolumeName
	}
	return VolumeName(c.Claim.UID)
}

// Here asks for a volume that one machine reaches, given its topology segments;
// nil for none.
func Here(segments map[string]string) *csi.TopologyRequirement {
	if len(segments) == 0 {
		return nil
	}
	term := func() []*csi.Topology { return []*csi.Topology{{Segments: maps.Clone(segments)}} }
	return &csi.TopologyRequirement{Requisite: term(), Preferred: term()}
}

// Request builds the CreateVolumeRequest. It depends on nothing but its
// arguments, so that it may be recorded before the call and repeated after a crash.
func (c Creation) Request() (*csi.CreateVolumeRequest, error) {
	sizeOf := SizeOf
	if c.NoLimit {
		sizeOf = RequestOf
	}
	size, err := sizeOf(c.Claim)
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
	return &csi.CreateVolumeRequest{
		Name:                      c.Name(),
		CapacityRange:             size,
		VolumeCapabilities:        capabilities,
		Parameters:                c.parameters(),
		VolumeContentSource:       c.Source.content(),
		AccessibilityRequirements: c.Topology,
		MutableParameters:         maps.Clone(c.MutableParameters),
	}, nil
}

func (c Creation) parameters() map[string]string {
	parameters := maps.Clone(c.Class.Parameters)
	if c.ExtraMetadata {
		parameters[ReservedPrefix+"pvc/name"] = c.Claim.Name
		parameters[ReservedPrefix+"pvc/namespace"] = c.Claim.Namespace
		parameters[ReservedPrefix+"pv/name"] = c.Name()
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
	size, err := RequestOf(pvc)
	if err != nil {
		return nil, err
	}
	if limit, found := pvc.Spec.Resources.Limits[corev1.ResourceStorage]; found {
		size.LimitBytes = limit.Value()
		if size.LimitBytes < size.RequiredBytes {
			request := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
			return nil, fmt.Errorf("%s: spec.resources: the limit %s is below the request %s",
				Describe(pvc), limit.String(), request.String())
		}
	}
	return size, nil
}

// RequestOf is SizeOf without a limit.
func RequestOf(pvc *corev1.PersistentVolumeClaim) (*csi.CapacityRange, error) {
	request, found := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	if !found {
		return nil, fmt.Errorf("%s: spec.resources.requests.storage is missing", Describe(pvc))
	}
	size := &csi.CapacityRange{RequiredBytes: request.Value()}
	if size.RequiredBytes <= 0 {
		return nil, fmt.Errorf("%s: spec.resources.requests.storage: %s is not above zero", Describe(pvc), request.String())
	}
	return size, nil
}

// Describe names a claim in messages.
func Describe(pvc *corev1.PersistentVolumeClaim) string {
	return fmt.Sprintf("PersistentVolumeClaim %q", pvc.Namespace+"/"+pvc.Name)
}
