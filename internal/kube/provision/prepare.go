package provision

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// prepare returns the intent of a claim's volume, and the secret's values for the first
// call. It changes only the finalizer of a source.
func (c *Controller) prepare(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (volumeIntent, map[string]string, error) {
	source, err := claim.SourceOf(pvc)
	if err == nil {
		err = c.granted(pvc, source)
	}
	if err != nil {
		return volumeIntent{}, nil, err
	}
	plugin, can, err := c.capabilities(ctx)
	if err != nil {
		return volumeIntent{}, nil, err
	}
	if err := c.able(pvc, source, can, plugin); err != nil {
		return volumeIntent{}, nil, err
	}
	creation, err := c.creation(pvc, class, can)
	if err != nil {
		return volumeIntent{}, nil, err
	}
	secrets, err := creation.Class.ResolveSecrets(claim.VolumeTokens(pvc, creation.VolumeName))
	if err != nil {
		return volumeIntent{}, nil, err
	}
	var usable []claim.Term
	if creation.Source, usable, err = c.source(ctx, pvc, source); err != nil {
		return volumeIntent{}, nil, err
	}
	if creation.Topology, err = c.topology(pvc, class, plugin); err != nil {
		return volumeIntent{}, nil, err
	}
	if creation.Topology, err = restrict(pvc, source, creation.Topology, usable, plugin); err != nil {
		return volumeIntent{}, nil, err
	}
	request, err := creation.Request()
	if err != nil {
		return volumeIntent{}, nil, err
	}
	values, err := c.env.Secret(ctx, secrets[claim.SecretProvision])
	if err != nil {
		return volumeIntent{}, nil, fmt.Errorf("secret for CreateVolume, named by StorageClass %q: %w", class.Name, err)
	}
	template := creation.Template(claim.VolumeOptions{
		Policy: claim.ReclaimPolicy(class), Finalizers: c.finalizers(claim.ReclaimPolicy(class)), Secrets: secrets,
		Identity: c.identity, ReadOnly: c.options.PublishReadOnly && can.PublishReadOnly,
	})
	made, err := c.newIntent(request, template, sourceOf(pvc), selectedNode(pvc))
	return made, values, err
}

func sourceOf(pvc *corev1.PersistentVolumeClaim) string {
	for _, source := range cluster.ClaimBySource().Values(pvc) {
		return source
	}
	return ""
}

// finalizers are on the PersistentVolume from the start: another write would
// add them otherwise.
func (c *Controller) finalizers(policy corev1.PersistentVolumeReclaimPolicy) (finalizers []string) {
	if policy == corev1.PersistentVolumeReclaimDelete {
		finalizers = append(finalizers, claim.ProvisionerFinalizer)
	}
	if c.options.AttachFinalizer != "" {
		finalizers = append(finalizers, c.options.AttachFinalizer)
	}
	return finalizers
}

func (c *Controller) capabilities(
	ctx context.Context,
) (client.PluginCapabilities, client.ControllerCapabilities, error) {
	plugin, err := c.env.CSI.PluginCapabilities(ctx)
	if err != nil {
		return plugin, client.ControllerCapabilities{}, err
	}
	can, err := c.env.CSI.ControllerCapabilities(ctx)
	return plugin, can, err
}

// able returns an error if the driver lacks a capability for a claim.
func (c *Controller) able(
	pvc *corev1.PersistentVolumeClaim, source claim.SourceRef, can client.ControllerCapabilities, plugin client.PluginCapabilities,
) error {
	lacks := func(what, capability string) error {
		return fmt.Errorf("%s: driver %s does not %s (%s)", claim.Describe(pvc), c.env.Driver, what, capability)
	}
	switch {
	case !can.CreateDelete:
		return lacks("create volumes", "CREATE_DELETE_VOLUME")
	case source.Kind == claim.SourceSnapshot && !can.Snapshots:
		return lacks("restore snapshots", "CREATE_DELETE_SNAPSHOT")
	case source.Kind == claim.SourceClaim && !can.Clone:
		return lacks("clone volumes", "CLONE_VOLUME")
	case attributesClass(pvc) != "" && !can.Modify:
		return lacks("support VolumeAttributesClasses", "MODIFY_VOLUME")
	case !c.env.Scope.Central() && !plugin.Topology:
		return lacks("report the topology of its volumes, which controllers on each node need", "VOLUME_ACCESSIBILITY_CONSTRAINTS")
	case pvc.Spec.Selector != nil:
		return fmt.Errorf("%s: spec.selector: a volume that is created for a claim cannot be selected by labels; "+
			"remove the selector or the class", claim.Describe(pvc))
	}
	return nil
}

func attributesClass(pvc *corev1.PersistentVolumeClaim) string {
	if pvc.Spec.VolumeAttributesClassName == nil {
		return ""
	}
	return *pvc.Spec.VolumeAttributesClassName
}

// creation returns the request without source and topology, or an error about the claim
// or the class itself.
func (c *Controller) creation(
	pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, can client.ControllerCapabilities,
) (claim.Creation, error) {
	parsed, err := claim.ParseClassFS(class, c.options.DefaultFSType)
	if err != nil {
		return claim.Creation{}, err
	}
	if parsed.Driver != c.env.Driver { // the class is translated, and keeps the plugin's name
		parsed.InTree, parsed.Driver = parsed.Driver, c.env.Driver
	}
	mutable, err := c.mutableParameters(pvc)
	if err != nil {
		return claim.Creation{}, err
	}
	creation := claim.Creation{
		Class: parsed, Claim: pvc, Modes: claim.Modes{SingleNodeMultiWriter: can.SingleNodeMultiWriter},
		VolumeName: c.volumeName(pvc), ExtraMetadata: c.options.ExtraCreateMetadata, NoLimit: true, MutableParameters: mutable,
	}
	_, err = creation.Request()
	return creation, err
}

func (c *Controller) mutableParameters(pvc *corev1.PersistentVolumeClaim) (map[string]string, error) {
	name := attributesClass(pvc)
	if name == "" {
		return nil, nil
	}
	class, found := c.attributes.Get(name)
	switch {
	case !found && !c.attributes.HasSynced():
		return nil, waitFor("%s: spec.volumeAttributesClassName: the cluster does not serve VolumeAttributesClasses in %s; "+
			"Kubernetes does from 1.34 on", claim.Describe(pvc), storagev1.SchemeGroupVersion)
	case !found:
		return nil, waitFor("%s: spec.volumeAttributesClassName: VolumeAttributesClass %q does not exist", claim.Describe(pvc), name)
	case class.DriverName != c.env.Driver:
		return nil, fmt.Errorf("%s: VolumeAttributesClass %q is for driver %q, not %q",
			claim.Describe(pvc), name, class.DriverName, c.env.Driver)
	}
	return class.Parameters, nil
}

// topology returns from where the volume must be reachable.
func (c *Controller) topology(
	pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, plugin client.PluginCapabilities,
) (*csi.TopologyRequirement, error) {
	switch {
	case !plugin.Topology:
		return nil, nil
	case c.options.Topology != nil:
		return c.options.Topology.Requirement(pvc, class, selectedNode(pvc))
	case c.env.Scope.Central():
		return nil, errors.New("the driver has topology, and the controller lacks a topology tracker")
	}
	if err := claim.CheckTopology(class, c.env.Scope.Segments); err != nil {
		return nil, err
	}
	return claim.Here(c.env.Scope.Segments), nil
}
