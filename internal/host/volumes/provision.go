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

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csiclient"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// EnsureClaim gives a claim its volume, with at least the size that the claim
// asks for now. It is idempotent: a creation that was cut off is finished.
func (m *Manager) EnsureClaim(ctx context.Context, key string) error {
	unlock, err := m.lock(ctx, "claim "+key)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := m.boundClaim(key)
	switch {
	case err != nil:
		return err
	case found.claim.DeletionTimestamp != nil:
		return fmt.Errorf("%s is being deleted", claim.Describe(found.claim))
	case found.volume != nil:
		return m.grow(ctx, found)
	}
	record, err := m.intend(ctx, found.claim)
	if err != nil {
		return err
	}
	return m.step(ctx, claimLabel(key), StepCreate, m.onward(claim.CallCreate), func(ctx context.Context) (string, error) {
		volume, err := m.create(ctx, record, found.claim)
		if err != nil {
			return "", err
		}
		return sizeText(volume), nil
	})
}

func claimLabel(key string) string { return "claim " + key }

func sizeText(volume *corev1.PersistentVolume) string {
	size := volume.Spec.Capacity[corev1.ResourceStorage]
	return size.String()
}

// intend returns the record of the creation, written before this returns: the
// one of an earlier try, whose request is repeated word for word, or a new one.
func (m *Manager) intend(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (record *store.Provisioning, err error) {
	err = m.view(func(tx *store.Tx) error {
		record, err = tx.Provisionings().Get(string(pvc.UID))
		return err
	})
	if err != nil || record != nil {
		return record, err
	}
	class, err := m.classOf(pvc)
	if err != nil {
		return nil, err
	}
	request, err := m.request(ctx, pvc, class)
	if err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("%s: record the request: %w", claim.Describe(pvc), err)
	}
	record = &store.Provisioning{
		ClaimUID: pvc.UID, Claim: store.Key(pvc.Namespace, pvc.Name), VolumeName: request.GetName(),
		Driver: class.Provisioner, Class: *class, Request: text, Started: time.Now(),
	}
	if err := m.hit("provision/intent"); err != nil {
		return nil, err
	}
	return record, m.update(func(tx *store.Tx) error { return tx.Provisionings().Put(string(pvc.UID), record) })
}

func (m *Manager) classOf(pvc *corev1.PersistentVolumeClaim) (class *storagev1.StorageClass, err error) {
	if pvc.Spec.StorageClassName == nil || *pvc.Spec.StorageClassName == "" {
		return nil, fmt.Errorf("%s names no StorageClass", claim.Describe(pvc))
	}
	name := *pvc.Spec.StorageClassName
	err = m.view(func(tx *store.Tx) error {
		class, err = tx.Classes().Get(name)
		return err
	})
	if err == nil && class == nil {
		err = fmt.Errorf("%s: spec.storageClassName: there is no StorageClass %q", claim.Describe(pvc), name)
	}
	return class, err
}

// request builds what the driver will be asked.
func (m *Manager) request(ctx context.Context, pvc *corev1.PersistentVolumeClaim, sc *storagev1.StorageClass) (*csi.CreateVolumeRequest, error) {
	class, err := parseClass(sc)
	if err != nil {
		return nil, err
	}
	side, err := m.controllerSide(ctx, store.Key(pvc.Namespace, pvc.Name), class.Driver)
	if err != nil {
		return nil, err
	}
	if !side.can.CreateDelete {
		return nil, fmt.Errorf("%s: driver %s does not make volumes (CREATE_DELETE_VOLUME)", claim.Describe(pvc), class.Driver)
	}
	creation := claim.Creation{
		Class: class, Claim: pvc, Modes: claim.Modes{SingleNodeMultiWriter: side.can.SingleNodeMultiWriter},
	}
	if creation.Source, err = m.source(ctx, pvc, class.Driver, side.can); err != nil {
		return nil, err
	}
	if side.plugin.Topology {
		creation.Topology = claim.Here(side.node.Topology)
		if err := claim.CheckTopology(sc, side.node.Topology); err != nil {
			return nil, err
		}
	}
	return creation.Request()
}

// parseClass refuses a class with secrets: this host keeps none.
func parseClass(sc *storagev1.StorageClass) (claim.Class, error) {
	class, err := claim.ParseClass(sc)
	if err == nil && len(class.Secrets) > 0 {
		err = fmt.Errorf("StorageClass %q: parameters: secrets (%s…-secret-name) are not supported on one machine", sc.Name, claim.ReservedPrefix)
	}
	return class, err
}

// controllerSide is what a driver's controller can do.
type controllerSide struct {
	plugin csiclient.PluginCapabilities
	can    csiclient.ControllerCapabilities
	node   plugins.NodeInfo
}

func (m *Manager) controllerSide(ctx context.Context, key, name string) (side controllerSide, err error) {
	err = m.ask(ctx, claimLabel(key), func(ctx context.Context) error {
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

// source finds the volume that a claim wants to be a copy of. A source claim
// that has no volume yet gets it first.
func (m *Manager) source(ctx context.Context, pvc *corev1.PersistentVolumeClaim, driver string, can csiclient.ControllerCapabilities) (claim.Source, error) {
	reference, err := claim.SourceOf(pvc)
	switch {
	case err != nil || reference.Kind == claim.SourceNone:
		return claim.Source{}, err
	case reference.Kind == claim.SourceSnapshot:
		return claim.Source{}, fmt.Errorf("%s: spec.dataSource: VolumeSnapshot objects are not supported on one machine yet; name a PersistentVolumeClaim", claim.Describe(pvc))
	case !can.Clone:
		return claim.Source{}, fmt.Errorf("%s: spec.dataSource: driver %s does not clone volumes (CLONE_VOLUME)", claim.Describe(pvc), driver)
	}
	key := store.Key(pvc.Namespace, reference.Name)
	if key == store.Key(pvc.Namespace, pvc.Name) {
		return claim.Source{}, fmt.Errorf("%s: spec.dataSource: a claim cannot be a copy of itself", claim.Describe(pvc))
	}
	if err := m.EnsureClaim(ctx, key); err != nil {
		return claim.Source{}, fmt.Errorf("%s: spec.dataSource: %w", claim.Describe(pvc), err)
	}
	found, err := m.boundClaim(key)
	if err != nil {
		return claim.Source{}, err
	}
	if err := claim.CheckClone(pvc, found.claim, found.volume, driver); err != nil {
		return claim.Source{}, err
	}
	return claim.Source{VolumeHandle: found.volume.Spec.CSI.VolumeHandle}, nil
}

// create asks the driver and records the volume. A final error takes the
// intent back; after any other the driver may have made it.
func (m *Manager) create(ctx context.Context, record *store.Provisioning, pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	request, made, err := m.callCreate(ctx, record)
	if err != nil {
		note(&record.Trouble, claim.CallCreate, err)
		return nil, errors.Join(err, m.update(func(tx *store.Tx) error {
			if claim.Classify(claim.CallCreate, err) == claim.OutcomeUncertain {
				return tx.Provisionings().Put(string(record.ClaimUID), record)
			}
			return tx.Provisionings().Delete(string(record.ClaimUID))
		}))
	}
	class, err := parseClass(&record.Class)
	if err != nil {
		return nil, err
	}
	volume := claim.PersistentVolume(claim.Creation{Class: class, Claim: pvc}, claim.ReclaimPolicy(&record.Class), request, made)
	if err := m.hit("provision/called"); err != nil {
		return nil, err
	}
	if err := m.bind(pvc, volume); err != nil {
		return nil, fmt.Errorf("%w: %w", errStore, err)
	}
	return volume, m.hit("provision/recorded")
}

// callCreate calls the driver and checks its answer. A volume that is not what
// was asked for is deleted again.
func (m *Manager) callCreate(ctx context.Context, record *store.Provisioning) (*csi.CreateVolumeRequest, *csi.Volume, error) {
	request := &csi.CreateVolumeRequest{}
	if err := protojson.Unmarshal(record.Request, request); err != nil {
		return nil, nil, fmt.Errorf("the recorded request for %s is damaged: %w", record.VolumeName, err)
	}
	driver, err := m.options.Drivers.Driver(record.Driver)
	if err != nil {
		return nil, nil, err
	}
	made, err := driver.Client.CreateVolume(ctx, request)
	if err != nil {
		return nil, nil, err
	}
	if wrong := claim.CheckAnswer(request, made); wrong != nil {
		wrong = fmt.Errorf("%w: %w", claim.ErrDriverFailed, wrong)
		if made.GetVolumeId() == "" {
			return nil, nil, wrong
		}
		if err := driver.Client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: made.GetVolumeId()}); err != nil {
			// The texts only: this is not final, since the record is needed to find
			// the volume again, whatever class the two errors have.
			return nil, nil, fmt.Errorf("%s, and it could not be deleted: %s", wrong.Error(), err.Error())
		}
		return nil, nil, wrong
	}
	return request, made, nil
}

// bind writes volume, claim and the end of the intent in one transaction.
func (m *Manager) bind(pvc *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	key := store.Key(pvc.Namespace, pvc.Name)
	return m.update(func(tx *store.Tx) error {
		current, err := tx.Claims().Get(key)
		if err != nil {
			return err
		}
		if current == nil || current.UID != pvc.UID {
			return fmt.Errorf("%s was replaced while its volume was made", claim.Describe(pvc))
		}
		current.Spec.VolumeName = volume.Name
		current.Status.Phase = corev1.ClaimBound
		current.Status.AccessModes = volume.Spec.AccessModes
		current.Status.Capacity = volume.Spec.Capacity
		return errors.Join(tx.Volumes().Put(volume.Name, volume), tx.Claims().Put(key, current),
			tx.Provisionings().Delete(string(pvc.UID)))
	})
}

func quantity(bytes int64) resource.Quantity { return *resource.NewQuantity(bytes, resource.BinarySI) }
