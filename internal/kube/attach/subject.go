package attach

import (
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/migration"
)

// subject is the volume of an attachment.
type subject struct {
	pv   *corev1.PersistentVolume // nil for an inline volume
	spec *corev1.PersistentVolumeSpec
}

func (s subject) csi() *corev1.CSIPersistentVolumeSource { return s.spec.CSI }

// subjectOf returns the volume of an attachment, or an error if this driver cannot
// serve it.
func (c *Controller) subjectOf(va *storagev1.VolumeAttachment) (subject, error) {
	name, inline := volumeName(va), va.Spec.Source.InlineVolumeSpec
	switch {
	case name == "" && inline == nil:
		return subject{}, errors.New("spec.source names neither a persistentVolumeName nor an inlineVolumeSpec")
	case name != "" && inline != nil:
		return subject{}, errors.New("spec.source has both a persistentVolumeName and an inlineVolumeSpec; exactly one is allowed")
	case inline != nil && inline.CSI == nil:
		return subject{}, fmt.Errorf("spec.source.inlineVolumeSpec is of an in-tree plugin; the attach/detach controller of Kubernetes "+
			"translates such volumes before it creates a VolumeAttachment: use a PersistentVolume of driver %s", c.env.Driver)
	case inline != nil:
		return subject{spec: inline}, c.serves("inlineVolumeSpec", inline)
	}
	pv, found := c.volumes.Get(name)
	switch {
	case !found:
		return subject{}, fmt.Errorf("PersistentVolume %s: %w", name, errNoVolume)
	case isMigrated(pv):
		return subject{}, fmt.Errorf("PersistentVolume %s is of an in-tree plugin that was migrated to %s, and has no translation: "+
			"keep the vendor's external-attacher for it, or create a PersistentVolume with spec.csi for the same disk",
			name, pv.Annotations[migration.MigratedToAnnotation])
	}
	return subject{pv: pv, spec: &pv.Spec}, c.serves("PersistentVolume "+name, &pv.Spec)
}

var errNoVolume = errors.New("it does not exist")

func (c *Controller) serves(what string, spec *corev1.PersistentVolumeSpec) error {
	switch {
	case spec.CSI == nil:
		return fmt.Errorf("%s is not a CSI volume", what)
	case spec.CSI.Driver != c.env.Driver:
		return fmt.Errorf("%s belongs to driver %s, not to %s", what, spec.CSI.Driver, c.env.Driver)
	}
	return nil
}

// request returns the driver's request without the secrets.
func (c *Controller) request(
	s subject, node string, can client.ControllerCapabilities,
) (*csi.ControllerPublishVolumeRequest, error) {
	mode, err := claim.FoldAccessModes(claim.Modes{SingleNodeMultiWriter: can.SingleNodeMultiWriter}, s.spec.AccessModes)
	if err != nil {
		return nil, err
	}
	filesystem := s.csi().FSType
	if filesystem == "" {
		filesystem = c.options.DefaultFSType
	}
	use := claim.Use{Block: claim.IsBlock(s.spec.VolumeMode), FSType: filesystem, MountFlags: s.spec.MountOptions}
	return &csi.ControllerPublishVolumeRequest{
		VolumeId:         s.csi().VolumeHandle,
		NodeId:           node,
		VolumeCapability: use.Capability(mode),
		// A driver without PUBLISH_READONLY may misread the field.
		Readonly:      s.csi().ReadOnly && can.PublishReadOnly,
		VolumeContext: s.csi().VolumeAttributes,
	}, nil
}

// registeredID is the driver's ID of the attachment's node.
func (c *Controller) registeredID(va *storagev1.VolumeAttachment) (string, error) {
	node, found := c.nodes.Get(va.Spec.NodeName)
	if !found {
		return "", fmt.Errorf("node %s has no CSINode object: "+
			"its kubelet has not registered it, or the node was deleted", va.Spec.NodeName)
	}
	if id := nodeID(node, c.env.Driver); id != "" {
		return id, nil
	}
	return "", fmt.Errorf("driver %s is not registered on node %s: check that its node plugin runs there",
		c.env.Driver, va.Spec.NodeName)
}
