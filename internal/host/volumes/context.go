package volumes

import (
	"fmt"
	"maps"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// nodeSide is the Manager's state for the calls on this machine.
type nodeSide struct {
	// selinux replaces mount.LabelsFiles in tests.
	selinux func() bool
	// due has the times at which volumes are published again.
	due          dueTimes
	republishers republishers
}

func (n *nodeSide) labels() bool {
	if n.selinux != nil {
		return n.selinux()
	}
	return mount.LabelsFiles()
}

// nodeName is the name of the machine, as a node's name is written.
func (m *Manager) nodeName() string {
	if m.options.NodeName != "" {
		return m.options.NodeName
	}
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return strings.ToLower(name)
}

// secretRefs are the secrets of a volume's calls on this machine.
type secretRefs struct {
	attach, stage, publish, expand *corev1.SecretReference
}

func secretsOf(source *corev1.CSIPersistentVolumeSource) secretRefs {
	return secretRefs{
		attach: source.ControllerPublishSecretRef, stage: source.NodeStageSecretRef,
		publish: source.NodePublishSecretRef, expand: source.NodeExpandSecretRef,
	}
}

// nodeSecret reads a secret for one call; none for a nil reference. The call waits for a
// secret that does not exist. Values are never part of an error.
func (m *Manager) nodeSecret(label string, reference *corev1.SecretReference) (map[string]string, error) {
	if reference == nil || reference.Name == "" {
		return nil, nil
	}
	key := store.Key(reference.Namespace, reference.Name)
	values, err := m.secretValues(key)
	if err != nil {
		return nil, fmt.Errorf("%s: read Secret %s: %w", label, key, err)
	}
	if values == nil {
		return nil, waitingFor("Secret", key, "%s: waiting for Secret %s, which its driver is given", label, key)
	}
	return values, nil
}

// mayUse checks before the first call for a use whether the CSIDriver object allows it.
func (m *Manager) mayUse(toMount volumeToMount, object *storagev1.CSIDriver) error {
	if toMount.use.Inline && !claim.HasLifecycle(object, storagev1.VolumeLifecycleEphemeral) {
		return waitingFor("CSIDriver", toMount.use.Driver, "volume %q: driver %s has no CSIDriver object "+
			"whose volumeLifecycleModes list Ephemeral, so it serves no inline volumes",
			toMount.volumeName, toMount.use.Driver)
	}
	if !toMount.use.Inline && !claim.HasLifecycle(object, storagev1.VolumeLifecyclePersistent) {
		return waitingFor("CSIDriver", toMount.use.Driver, "%s: the CSIDriver object of %s does not list Persistent "+
			"in volumeLifecycleModes, so it serves inline volumes only",
			toMount.label, toMount.use.Driver)
	}
	if object != nil && len(object.Spec.TokenRequests) > 0 && !toMount.use.Block {
		return waitingFor("CSIDriver", toMount.use.Driver, "%s: CSIDriver %s: spec.tokenRequests: "+
			"this host has no API server that issues service account tokens, so volumes of this driver cannot be mounted; "+
			"configure the driver to work without tokens, and remove the field", toMount.label, toMount.use.Driver)
	}
	return nil
}

// fitsHere checks that the volume can be reached from this machine.
func (m *Manager) fitsHere(toMount volumeToMount, driver *plugins.Driver) error {
	if toMount.volume == nil {
		return nil
	}
	labels := map[string]string{claim.HostnameLabel: m.nodeName()}
	maps.Copy(labels, driver.Node.Topology)
	if claim.FitsNode(toMount.volume.Spec.NodeAffinity, m.nodeName(), labels) {
		return nil
	}
	return fmt.Errorf("%s: PersistentVolume %s can be used where %s, and this machine has %v (spec.nodeAffinity): %w",
		toMount.label, toMount.volume.Name, claim.DescribeAffinity(toMount.volume.Spec.NodeAffinity), labels, errLocal)
}
