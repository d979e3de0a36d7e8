package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func claimLabel(key string) string { return "claim " + key }

func claimSubject(pvc *corev1.PersistentVolumeClaim, driver, handle string) subject {
	key := store.Key(pvc.Namespace, pvc.Name)
	return subject{label: claimLabel(key), about: []journal.Ref{claimAbout(pvc)}, driver: driver, handle: handle}
}

func claimAbout(pvc *corev1.PersistentVolumeClaim) journal.Ref {
	return journal.Ref{Kind: "PersistentVolumeClaim", Key: store.Key(pvc.Namespace, pvc.Name), UID: string(pvc.UID)}
}

func sizeText(volume *corev1.PersistentVolume) string {
	size := volume.Spec.Capacity[corev1.ResourceStorage]
	return size.String()
}

// provision makes the volume of a claim: it writes down what the driver is going
// to be asked, asks, and writes down what came of it.
func (m *Manager) provision(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	record, fresh, err := m.intend(ctx, pvc)
	if err != nil {
		return err
	}
	return m.finishCreation(ctx, record, pvc, fresh)
}

// finishCreation asks for the volume of a record until there is a final answer.
// fresh: no earlier request exists. The claim is only named in messages: it may be gone.
func (m *Manager) finishCreation(ctx context.Context, record *store.Provisioning, pvc *corev1.PersistentVolumeClaim, fresh bool) error {
	return m.stepOf(ctx, claimSubject(pvc, record.Driver, ""), StepCreate, onward(claim.CallCreate), func(ctx context.Context) (string, error) {
		volume, err := m.create(ctx, record, fresh)
		fresh = false
		if err != nil {
			return "", err
		}
		m.recordEvent(claimAbout(pvc), false, reasonProvisioned, "Successfully provisioned volume "+volume.Name)
		return sizeText(volume), nil
	})
}

// intend returns the record of the creation, written before this returns: the
// one of an earlier try, whose request is repeated word for word, or a new one.
func (m *Manager) intend(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (record *store.Provisioning, fresh bool, err error) {
	if record, err = m.provisioning(pvc.UID); err != nil || record != nil {
		return record, false, errors.Join(err, completeRecord(record, pvc))
	}
	class, err := m.classOf(pvc)
	if err != nil {
		return nil, false, err
	}
	if record, err = m.prepare(ctx, pvc, class); err != nil {
		return nil, false, err
	}
	if err := m.hit("provision/intent"); err != nil {
		return nil, false, err
	}
	if err := m.begin(pvc, record); err != nil {
		return nil, false, err
	}
	m.recordEvent(claimAbout(pvc), false, reasonProvisioning, fmt.Sprintf("driver %s is asked for a volume for claim %q", record.Driver, record.Claim))
	return record, true, m.hit("provision/begun")
}

// completeRecord adds the PersistentVolume to a record of an earlier version,
// which had no secrets.
func completeRecord(record *store.Provisioning, pvc *corev1.PersistentVolumeClaim) error {
	if record == nil || record.Volume != nil {
		return nil
	}
	class, err := claim.ParseClass(&record.Class)
	policy := claim.ReclaimPolicy(&record.Class)
	record.Volume = claim.Creation{Class: class, Claim: pvc}.Template(claim.VolumeOptions{Policy: policy, Finalizers: volumeFinalizers(policy)})
	return err
}

func (m *Manager) provisioning(uid types.UID) (record *store.Provisioning, err error) {
	err = m.view(func(tx *store.Tx) error {
		record, err = tx.Provisionings().Get(string(uid))
		return err
	})
	return record, err
}

// begin writes the intent, and keeps the source from going meanwhile. What the
// request was made from may have changed by now: then it is made again.
func (m *Manager) begin(pvc *corev1.PersistentVolumeClaim, record *store.Provisioning) error {
	return m.update(func(tx *store.Tx) error {
		current, err := tx.Claims().Get(record.Claim)
		if err != nil {
			return err
		}
		if current == nil || current.UID != pvc.UID || current.Spec.VolumeName != "" {
			return fmt.Errorf("%s changed meanwhile", claim.Describe(pvc))
		}
		if record.Source != "" {
			if err := keepSource(tx, record.Source); err != nil {
				return fmt.Errorf("%s: spec.dataSource: %w", claim.Describe(pvc), err)
			}
		}
		return tx.Provisionings().Put(string(pvc.UID), record)
	})
}

// forget removes the record of a creation that is over, and lets its source go
// if nothing else is made of it.
func forget(tx *store.Tx, record *store.Provisioning) error {
	if err := tx.Provisionings().Delete(string(record.ClaimUID)); err != nil || record.Source == "" {
		return err
	}
	return releaseSource(tx, record.Source)
}

func (m *Manager) classOf(pvc *corev1.PersistentVolumeClaim) (class *storagev1.StorageClass, err error) {
	if pvc.Spec.StorageClassName == nil || *pvc.Spec.StorageClassName == "" {
		return nil, fmt.Errorf("%s names no StorageClass", claim.Describe(pvc))
	}
	name := *pvc.Spec.StorageClassName
	if class, err = m.class(name); err == nil && class == nil {
		err = waitFor(dependencies(dependency("storageclasses", name)), "",
			"%s: spec.storageClassName: there is no StorageClass %q", claim.Describe(pvc), name)
	}
	return class, err
}

func (m *Manager) class(name string) (class *storagev1.StorageClass, err error) {
	err = m.view(func(tx *store.Tx) error {
		class, err = tx.Classes().Get(name)
		return err
	})
	return class, err
}

// prepare works out what the driver will be asked, and what the
// PersistentVolume will say. It writes nothing.
func (m *Manager) prepare(ctx context.Context, pvc *corev1.PersistentVolumeClaim, sc *storagev1.StorageClass) (*store.Provisioning, error) {
	class, err := claim.ParseClass(sc)
	if err != nil {
		return nil, err
	}
	side, err := m.controllerSide(ctx, store.Key(pvc.Namespace, pvc.Name), class.Driver)
	if err != nil {
		return nil, err
	}
	if err := able(pvc, class.Driver, side); err != nil {
		return nil, err
	}
	creation := claim.Creation{
		Class: class, Claim: pvc, Modes: claim.Modes{SingleNodeMultiWriter: side.can.SingleNodeMultiWriter},
	}
	if creation.ExtraMetadata, err = m.extraMetadata(class.Driver); err != nil {
		return nil, err
	}
	if creation.MutableParameters, err = m.mutableParameters(pvc, class.Driver); err != nil {
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
	if creation.Source, source, err = m.source(pvc, class.Driver); err != nil {
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

// able reports whether the driver can do what the claim asks for.
func able(pvc *corev1.PersistentVolumeClaim, driver string, side controllerSide) error {
	lacks := func(field, what, capability string) error {
		return fmt.Errorf("%s: %sdriver %s does not %s (%s)", claim.Describe(pvc), field, driver, what, capability)
	}
	source, err := claim.SourceOf(pvc)
	switch {
	case err != nil:
		return err
	case !side.can.CreateDelete:
		return lacks("", "make volumes", "CREATE_DELETE_VOLUME")
	case source.Kind == claim.SourceClaim && !side.can.Clone:
		return lacks("spec.dataSource: ", "clone volumes", "CLONE_VOLUME")
	case source.Kind == claim.SourceSnapshot && !side.can.Snapshots:
		return lacks("spec.dataSource: ", "restore snapshots", "CREATE_DELETE_SNAPSHOT")
	case attributesClass(pvc) != "" && !side.can.Modify:
		return lacks("spec.volumeAttributesClassName: ", "know VolumeAttributesClasses", "MODIFY_VOLUME")
	case pvc.Spec.Selector != nil:
		return fmt.Errorf("%s: spec.selector: volumes that are made for a claim cannot be selected by labels; take the selector out, or the class", claim.Describe(pvc))
	}
	return nil
}

// controllerSide is what a driver's controller can do.
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

// ExtraMetadataAnnotation on a CSIDriver, "true", has the names of claim and
// volume sent among the parameters of CreateVolume, and those of a snapshot
// with CreateSnapshot: what --extra-create-metadata of the sidecars is.
const ExtraMetadataAnnotation = "holdfast.dev/extra-create-metadata"

func (m *Manager) extraMetadata(driver string) (bool, error) {
	object, err := m.csiDriver(driver)
	return object != nil && object.Annotations[ExtraMetadataAnnotation] == "true", err
}

func attributesClass(pvc *corev1.PersistentVolumeClaim) string {
	if pvc.Spec.VolumeAttributesClassName == nil {
		return ""
	}
	return *pvc.Spec.VolumeAttributesClassName
}

// mutableParameters are those of the claim's VolumeAttributesClass.
func (m *Manager) mutableParameters(pvc *corev1.PersistentVolumeClaim, driver string) (map[string]string, error) {
	name := attributesClass(pvc)
	if name == "" {
		return nil, nil
	}
	class, err := m.attributesClass(name)
	switch {
	case err != nil:
		return nil, err
	case class == nil:
		return nil, waitFor(dependencies(dependency("volumeattributesclasses", name)), "",
			"%s: spec.volumeAttributesClassName: there is no VolumeAttributesClass %q", claim.Describe(pvc), name)
	case class.DriverName != driver:
		return nil, fmt.Errorf("%s: spec.volumeAttributesClassName: VolumeAttributesClass %q is for driver %s, not %s", claim.Describe(pvc), name, class.DriverName, driver)
	}
	return class.Parameters, nil
}

func (m *Manager) attributesClass(name string) (class *storagev1.VolumeAttributesClass, err error) {
	err = m.view(func(tx *store.Tx) error {
		class, err = tx.AttributesClasses().Get(name)
		return err
	})
	return class, err
}

// nameIsFree: a PersistentVolume of the name that the new one will have is
// another's.
func (m *Manager) nameIsFree(pvc *corev1.PersistentVolumeClaim, name string) error {
	volume, err := m.volume(name)
	if err != nil || volume == nil {
		return err
	}
	return waitFor(dependencies(dependency(volumeResource, name)), "",
		"%s: PersistentVolume %q exists and was not made for this claim; delete or rename it", claim.Describe(pvc), name)
}

func (m *Manager) volume(name string) (volume *corev1.PersistentVolume, err error) {
	err = m.view(func(tx *store.Tx) error {
		volume, err = tx.Volumes().Get(name)
		return err
	})
	return volume, err
}

func quantity(bytes int64) resource.Quantity { return *resource.NewQuantity(bytes, resource.BinarySI) }

// isLocal reports whether an error says nothing about what a driver did.
func isLocal(err error) bool {
	return errors.Is(err, ErrWaiting) || errors.Is(err, plugins.ErrNotRegistered) || errors.Is(err, errStore)
}

// requestOf reads the recorded request.
func requestOf(record *store.Provisioning) (*csi.CreateVolumeRequest, error) {
	request := &csi.CreateVolumeRequest{}
	if err := protojson.Unmarshal(record.Request, request); err != nil {
		return nil, fmt.Errorf("the recorded request for %s is damaged: %w", record.VolumeName, err)
	}
	return request, nil
}
