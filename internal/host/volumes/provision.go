package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// provision creates the volume of a claim.
func (m *Manager) provision(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) error {
	intent, err := m.recordIntent(ctx, pvc, class)
	if err == nil {
		err = m.createVolume(ctx, intent, pvc, true)
	}
	if errors.Is(err, plugins.ErrNotRegistered) {
		m.once(claimResource, claimAbout(pvc), false, reasonExternal, fmt.Sprintf(
			"Waiting for a volume to be created either by the external provisioner '%s' "+
				"or manually by the system administrator. If volume creation is delayed, "+
				"please verify that the provisioner is running and correctly registered.", class.Provisioner))
	}
	return err
}

// recordIntent returns the intent of a creation, which it has written. It fails if the
// claim or the source has changed since they were read.
func (m *Manager) recordIntent(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (*store.Provisioning, error) {
	intent, err := m.prepare(ctx, pvc, class)
	if err != nil {
		return nil, err
	}
	if err := m.hit("provision/intent"); err != nil {
		return nil, err
	}
	err = m.update(func(tx *store.Tx) error {
		current, err := tx.Claims().Get(intent.Claim)
		if err != nil {
			return err
		}
		if current == nil || current.UID != pvc.UID || current.Spec.VolumeName != "" {
			return fmt.Errorf("%s changed meanwhile", claim.Describe(pvc))
		}
		if intent.Source != "" {
			if err := keepSource(tx, intent.Source); err != nil {
				return fmt.Errorf("%s: spec.dataSource: %w", claim.Describe(pvc), err)
			}
		}
		return tx.Provisionings().Put(string(pvc.UID), intent)
	})
	if err != nil {
		return nil, err
	}
	m.recordEvent(claimAbout(pvc), false, reasonProvisioning,
		fmt.Sprintf("driver %s is asked for a volume for claim %q", intent.Driver, intent.Claim))
	return intent, m.hit("provision/begun")
}

// prepare returns the intent of a creation: the request to the driver, and the
// PersistentVolume as far as it is known. It writes nothing.
func (m *Manager) prepare(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, sc *storagev1.StorageClass,
) (*store.Provisioning, error) {
	class, err := claim.ParseClass(sc)
	if err != nil {
		return nil, err
	}
	side, err := m.controllerSide(ctx, store.Key(pvc.Namespace, pvc.Name), class.Driver)
	if err != nil {
		return nil, err
	}
	from, err := claim.SourceOf(pvc)
	if err != nil {
		return nil, err
	}
	if err := able(pvc, from.Kind, class.Driver, side); err != nil {
		return nil, err
	}
	creation := claim.Creation{
		Class: class, Claim: pvc, Modes: claim.Modes{SingleNodeMultiWriter: side.can.SingleNodeMultiWriter},
	}
	if creation.ExtraMetadata, err = m.extraMetadata(class.Driver); err != nil {
		return nil, err
	}
	if creation.MutableParameters, err = m.mutableParameters(pvc, class.Driver, side); err != nil {
		return nil, err
	}
	secrets, err := class.ResolveSecrets(claim.VolumeTokens(pvc, creation.Name()))
	if err != nil {
		return nil, err
	}
	if _, err := m.secret(secrets[claim.SecretProvision], "CreateVolume"); err != nil {
		return nil, fmt.Errorf("StorageClass %q: %w", sc.Name, err)
	}
	if side.plugin.Topology {
		creation.Topology = claim.Here(side.node.Topology)
		if err := claim.CheckTopology(sc, side.node.Topology); err != nil {
			return nil, err
		}
	}
	var source string
	if creation.Source, source, err = m.source(pvc, from, class.Driver); err != nil {
		return nil, err
	}
	request, err := creation.Request()
	if err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("%s: record the request: %w", claim.Describe(pvc), err)
	}
	return &store.Provisioning{
		ClaimUID: pvc.UID, Claim: store.Key(pvc.Namespace, pvc.Name), VolumeName: request.GetName(),
		Driver: sc.Provisioner, Class: *sc, Request: text, Started: time.Now(), Source: source,
		Volume: creation.Template(claim.VolumeOptions{
			Policy: claim.ReclaimPolicy(sc), Finalizers: volumeFinalizers(claim.ReclaimPolicy(sc)), Secrets: secrets,
			ReadOnly: side.can.PublishReadOnly,
		}),
	}, m.nameIsFree(pvc, creation.Name())
}

// lacks is the error of a claim that needs a capability which its driver does not have.
func lacks(pvc *corev1.PersistentVolumeClaim, driver, field, what, capability string) error {
	return fmt.Errorf("%s: %sdriver %s does not %s (%s)", claim.Describe(pvc), field, driver, what, capability)
}

// able returns an error if the driver cannot create the volume that a claim asks for.
func able(pvc *corev1.PersistentVolumeClaim, source claim.SourceKind, driver string, side controllerSide) error {
	switch {
	case !side.can.CreateDelete:
		return lacks(pvc, driver, "", "make volumes", "CREATE_DELETE_VOLUME")
	case source == claim.SourceClaim && !side.can.Clone:
		return lacks(pvc, driver, "spec.dataSource: ", "clone volumes", "CLONE_VOLUME")
	case source == claim.SourceSnapshot && !side.can.Snapshots:
		return lacks(pvc, driver, "spec.dataSource: ", "restore snapshots", "CREATE_DELETE_SNAPSHOT")
	case pvc.Spec.Selector != nil:
		return fmt.Errorf("%s: spec.selector: volumes that are made for a claim cannot be selected by labels; "+
			"take the selector out, or the class", claim.Describe(pvc))
	}
	return nil
}

// controllerSide is the capabilities of a driver's controller.
type controllerSide struct {
	plugin client.PluginCapabilities
	can    client.ControllerCapabilities
	node   plugins.NodeInfo
}

func (m *Manager) controllerSide(ctx context.Context, key, name string) (side controllerSide, err error) {
	err = ask(ctx, claimLabel(key), func(ctx context.Context) error {
		driver, err := m.options.Drivers.Driver(name)
		if err != nil {
			return err
		}
		side.node = driver.Node
		if side.plugin, err = driver.Client.PluginCapabilities(ctx); err != nil {
			return err
		}
		side.can, err = driver.Client.ControllerCapabilities(ctx)
		return err
	})
	return side, err
}

// ExtraMetadataAnnotation on a CSIDriver, "true", adds the names of claim and volume to
// the parameters of CreateVolume, and those of the snapshot to the parameters of
// CreateSnapshot, as --extra-create-metadata of the sidecars does.
const ExtraMetadataAnnotation = "holdfast.dev/extra-create-metadata"

func (m *Manager) extraMetadata(driver string) (bool, error) {
	object, err := m.driverOf(driver)
	return object != nil && object.Annotations[ExtraMetadataAnnotation] == "true", err
}

// mutableParameters are those of the claim's VolumeAttributesClass.
func (m *Manager) mutableParameters(
	pvc *corev1.PersistentVolumeClaim, driver string, side controllerSide,
) (map[string]string, error) {
	name := attributesClass(pvc)
	switch {
	case name == "":
		return nil, nil
	case !side.can.Modify:
		return nil, lacks(pvc, driver,
			"spec.volumeAttributesClassName: ", "know VolumeAttributesClasses", "MODIFY_VOLUME")
	}
	class, err := m.attributesClassOf(name)
	switch {
	case err != nil:
		return nil, err
	case class == nil:
		return nil, waitFor(dependencies(dependency("volumeattributesclasses", name)), "",
			"%s: spec.volumeAttributesClassName: VolumeAttributesClass %q does not exist", claim.Describe(pvc), name)
	case class.DriverName != driver:
		return nil, fmt.Errorf("%s: spec.volumeAttributesClassName: VolumeAttributesClass %q is for driver %s, not %s",
			claim.Describe(pvc), name, class.DriverName, driver)
	}
	return class.Parameters, nil
}

// nameIsFree returns an error if a PersistentVolume has the name of the one to be
// created.
func (m *Manager) nameIsFree(pvc *corev1.PersistentVolumeClaim, name string) error {
	volume, err := m.volumeOf(name)
	if err != nil || volume == nil {
		return err
	}
	return waitFor(dependencies(dependency(volumeResource, name)), "",
		"%s: PersistentVolume %q exists and was not made for this claim; delete or rename it", claim.Describe(pvc), name)
}

func inBytes(bytes int64) resource.Quantity { return *resource.NewQuantity(bytes, resource.BinarySI) }
