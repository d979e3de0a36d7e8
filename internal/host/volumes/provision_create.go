package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// create asks the driver and records the volume. A final error takes the
// intent back; after any other the driver may have made it.
func (m *Manager) create(ctx context.Context, record *store.Provisioning, fresh bool) (*corev1.PersistentVolume, error) {
	request, made, err := m.callCreate(ctx, record)
	if err != nil {
		return nil, m.refused(record, request, fresh, err)
	}
	template, err := templateOf(record)
	if err != nil {
		return nil, err
	}
	volume := claim.FillVolume(template, request, made)
	if err := m.hit("provision/called"); err != nil {
		return nil, err
	}
	if err := m.save(record, volume); err != nil {
		return nil, fmt.Errorf("%w: %w", errStore, err)
	}
	return volume, m.hit("provision/recorded")
}

// refused records how an attempt failed. Unless nothing can exist, the record
// stays, and with it the way to find the volume again.
func (m *Manager) refused(record *store.Provisioning, request *csi.CreateVolumeRequest, fresh bool, err error) error {
	if isLocal(err) {
		return err
	}
	outcome := lifecycle.Discard
	if !errors.As(err, new(*takenBackError)) {
		outcome = lifecycle.AfterFailedCreate(lifecycle.Creation{
			Call: claim.CallCreate, Copied: request.GetVolumeContentSource() != nil, Repeated: !fresh, Desired: true,
		}, err)
	}
	switch {
	case outcome == lifecycle.RetryLater:
		err = &rejectedError{err}
	case outcome.KeepsIntent() && !lifecycle.MayRun(claim.CallCreate, err):
		err = &uncertain{fmt.Errorf("volume %q may have been made by an earlier call, and the driver does not say: %w", record.VolumeName, err)}
	}
	note(&record.Trouble, claim.CallCreate, err)
	return errors.Join(err, m.update(func(tx *store.Tx) error {
		if !outcome.KeepsIntent() {
			return forget(tx, record)
		}
		return tx.Provisionings().Put(string(record.ClaimUID), record)
	}))
}

// rejectedError is of a request that the driver rejects as such (lifecycle.RetryLater).
type rejectedError struct{ error }

func (r *rejectedError) Unwrap() error { return r.error }

// uncertain hides what kind of an error it is about: whatever the driver's
// message, the outcome is unknown.
type uncertain struct{ about error }

func (u *uncertain) Error() string { return u.about.Error() }

// templateOf is the PersistentVolume without the driver's answer. Earlier
// versions did not record it; they knew no secrets.
func templateOf(record *store.Provisioning) (*corev1.PersistentVolume, error) {
	if record.Volume == nil {
		return nil, fmt.Errorf("the record of the creation of %s has no PersistentVolume", record.VolumeName)
	}
	template := record.Volume.DeepCopy()
	template.UID, template.CreationTimestamp = uuid.NewUUID(), metav1.NewTime(time.Now().Truncate(time.Second))
	return template, nil
}

// callCreate calls the driver and checks its answer. A volume that is not what
// was asked for is deleted again, unless it is another claim's.
func (m *Manager) callCreate(ctx context.Context, record *store.Provisioning) (*csi.CreateVolumeRequest, *csi.Volume, error) {
	request, err := requestOf(record)
	if err != nil {
		return nil, nil, err
	}
	driver, err := m.options.Drivers.Driver(record.Driver)
	if err != nil {
		return request, nil, err
	}
	if record.Volume != nil {
		reference, _ := claim.DeletionSecret(record.Volume)
		if request.Secrets, err = m.secret(reference, "CreateVolume"); err != nil {
			return request, nil, err
		}
	}
	made, err := driver.Client.CreateVolume(ctx, request)
	if err != nil {
		return request, nil, err
	}
	if err := m.hit("provision/answered"); err != nil {
		return request, nil, err
	}
	return request, made, m.accept(ctx, driver, record, request, made)
}

// accept checks what the driver says it made.
func (m *Manager) accept(ctx context.Context, driver *plugins.Driver, record *store.Provisioning, request *csi.CreateVolumeRequest, made *csi.Volume) error {
	wrong := errors.Join(claim.CheckAnswer(request, made), claim.CheckAccessibleTopology(request, made))
	handle := made.GetVolumeId()
	if handle == "" {
		return wrong // there is nothing to delete it by: it is asked for again
	}
	holder, err := m.holder(record.Driver, handle)
	if err != nil {
		return err
	}
	switch lifecycle.AfterCreate(lifecycle.Answer{Desired: true, Claimed: true, Usable: wrong == nil, Holder: holder}) {
	case lifecycle.Save:
		return nil
	case lifecycle.Wait, lifecycle.Leave:
		return fmt.Errorf("the driver answered CreateVolume %q with volume %q, which is that of PersistentVolume %q", request.GetName(), handle, holder.Name)
	}
	if err := driver.Client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: handle, Secrets: request.GetSecrets()}); err != nil {
		// This is not final, since the record is needed to find the volume again,
		// whatever class the two errors have.
		return &uncertain{fmt.Errorf("%w, and it could not be deleted: %w", wrong, err)}
	}
	return &takenBackError{wrong}
}

// takenBackError: the driver made something else than was asked for, and has deleted
// it again. It is a failure of the driver's, and final.
type takenBackError struct{ error }

func (t *takenBackError) Is(target error) bool { return target == claim.ErrDriverFailed }

// holder is the PersistentVolume that names a volume.
func (m *Manager) holder(driver, handle string) (lifecycle.Holder, error) {
	names, err := m.index.find(hasHandle(driver, handle))
	if err != nil || len(names) == 0 {
		return lifecycle.Holder{}, err
	}
	return lifecycle.Holder{Name: names[0]}, nil
}

// save writes volume, claim and the end of the intent in one transaction. A
// claim that was deleted or bound elsewhere meanwhile leaves the volume
// released, and its reclaim policy decides.
func (m *Manager) save(record *store.Provisioning, volume *corev1.PersistentVolume) error {
	return m.update(func(tx *store.Tx) error {
		known, err := tx.Volumes().Get(volume.Name)
		if err != nil {
			return err
		}
		if known != nil {
			return fmt.Errorf("PersistentVolume %q was made by another program meanwhile; delete or rename it", volume.Name)
		}
		pvc, err := tx.Claims().Get(record.Claim)
		if err != nil {
			return err
		}
		if pvc == nil || pvc.UID != record.ClaimUID || pvc.Spec.VolumeName != "" && pvc.Spec.VolumeName != volume.Name {
			volume.Status.Phase = corev1.VolumeReleased
			return errors.Join(tx.Volumes().Put(volume.Name, volume), forget(tx, record))
		}
		return errors.Join(join(tx, pvc, volume), forget(tx, record))
	})
}
