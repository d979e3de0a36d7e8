package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// createVolume calls the driver for the volume of an intent. first reports that no
// earlier call was made for it. The claim is only named in messages: it may be gone.
func (m *Manager) createVolume(
	ctx context.Context, intent *store.Provisioning, pvc *corev1.PersistentVolumeClaim, first bool,
) error {
	of := claimSubject(pvc, intent.Driver, "")
	of.request = intent.VolumeName
	return m.stepOf(ctx, of, StepCreate, onward(claim.CallCreate), func(ctx context.Context) (string, error) {
		volume, err := m.create(ctx, intent, first)
		if err != nil {
			return "", err
		}
		m.recordEvent(claimAbout(pvc), false, reasonProvisioned, "Successfully provisioned volume "+volume.Name)
		size := sizeOf(volume)
		return size.String(), nil
	})
}

// create calls the driver and records the volume. A final error removes the intent;
// after any other the driver may have created the volume.
func (m *Manager) create(
	ctx context.Context, intent *store.Provisioning, first bool,
) (*corev1.PersistentVolume, error) {
	request, made, err := m.callCreate(ctx, intent)
	if err != nil {
		return nil, m.createVolumeFailed(intent, request, first, err)
	}
	template := intent.Volume.DeepCopy()
	template.UID, template.CreationTimestamp = uuid.NewUUID(), metav1.NewTime(time.Now().Truncate(time.Second))
	volume := claim.FillVolume(template, request, made)
	if err := m.hit("provision/called"); err != nil {
		return nil, err
	}
	if err := m.save(intent, volume); err != nil {
		return nil, err
	}
	return volume, m.hit("provision/recorded")
}

// callCreate calls the driver and checks its answer. It deletes a volume that does not
// fit the request, unless that is another claim's.
func (m *Manager) callCreate(
	ctx context.Context, intent *store.Provisioning,
) (*csi.CreateVolumeRequest, *csi.Volume, error) {
	request := &csi.CreateVolumeRequest{}
	if err := protojson.Unmarshal(intent.Request, request); err != nil || intent.Volume == nil {
		return nil, nil, fmt.Errorf("the recorded request for %s is damaged: %w",
			intent.VolumeName, cmp.Or(err, errNoVolume))
	}
	driver, err := m.options.Drivers.Driver(intent.Driver)
	if err != nil {
		return request, nil, err
	}
	reference, _ := claim.DeletionSecret(intent.Volume)
	if request.Secrets, err = m.secret(reference, "CreateVolume"); err != nil {
		return request, nil, err
	}
	made, err := driver.Client.CreateVolume(ctx, request)
	if err != nil {
		return request, nil, err
	}
	if err := m.hit("provision/answered"); err != nil {
		return request, nil, err
	}
	return request, made, m.accept(ctx, driver, intent, request, made)
}

// errNoVolume is the damage of an intent that lacks its PersistentVolume.
var errNoVolume = errors.New("it has no PersistentVolume")

// accept checks the volume that the driver returned.
func (m *Manager) accept(
	ctx context.Context, driver *plugins.Driver, intent *store.Provisioning,
	request *csi.CreateVolumeRequest, made *csi.Volume,
) error {
	wrong := errors.Join(claim.CheckAnswer(request, made), claim.CheckAccessibleTopology(request, made))
	handle := made.GetVolumeId()
	if handle == "" {
		return wrong // without an ID, it cannot be deleted: the call is repeated
	}
	holder, err := m.holder(intent.Driver, handle)
	if err != nil {
		return err
	}
	claimed, err := m.isAwaited(intent)
	if err != nil {
		return err
	}
	held := fmt.Errorf("the driver answered CreateVolume %q with volume %q, which is that of PersistentVolume %q",
		request.GetName(), handle, holder.Name)
	switch lifecycle.AfterCreate(lifecycle.Answer{Desired: true, Claimed: claimed, Usable: wrong == nil, Holder: holder}) {
	case lifecycle.Save:
		return nil
	case lifecycle.Wait:
		return held
	case lifecycle.Leave:
		return &settledError{held}
	}
	remove := &csi.DeleteVolumeRequest{VolumeId: handle, Secrets: request.GetSecrets()}
	if err := driver.Client.DeleteVolume(ctx, remove); err != nil {
		// Not final, even if both errors are: only the intent leads to the volume.
		return &uncertain{fmt.Errorf("%w, and it could not be deleted: %w", wrong, err)}
	}
	return &settledError{wrong}
}

// settledError means that the driver created a volume that does not fit the request and
// has deleted it, or answered with that of a PersistentVolume although no claim waits for
// it any more. It is a failure of the driver's, and final.
type settledError struct{ error }

func (s *settledError) Is(target error) bool { return target == claim.ErrDriverFailed }

// isAwaited reports whether the claim of an intent exists, is not being deleted, and has
// no other volume.
func (m *Manager) isAwaited(intent *store.Provisioning) (bool, error) {
	pvc, err := m.claimOf(intent.Claim)
	if err != nil || pvc == nil || pvc.UID != intent.ClaimUID || pvc.DeletionTimestamp != nil {
		return false, err
	}
	return pvc.Spec.VolumeName == "" || pvc.Spec.VolumeName == intent.Volume.Name, nil
}

// holder finds the PersistentVolume that names a volume.
func (m *Manager) holder(driver, handle string) (lifecycle.Holder, error) {
	names, err := m.index.find(hasHandle(driver, handle))
	if err != nil || len(names) == 0 {
		return lifecycle.Holder{}, err
	}
	return lifecycle.Holder{Name: names[0]}, nil
}

// createVolumeFailed records a failed attempt. Unless the volume cannot exist, the
// intent stays: only it leads to the volume.
func (m *Manager) createVolumeFailed(
	intent *store.Provisioning, request *csi.CreateVolumeRequest, first bool, err error,
) error {
	if isLocal(err) {
		return err
	}
	outcome := lifecycle.Discard
	if !errors.As(err, new(*settledError)) {
		outcome = lifecycle.AfterFailedCreate(lifecycle.Creation{
			Call: claim.CallCreate, Copied: request.GetVolumeContentSource() != nil, Repeated: !first, Desired: true,
		}, err)
	}
	if outcome != lifecycle.RetryLater && outcome.KeepsIntent() && !lifecycle.MayRun(claim.CallCreate, err) {
		err = &uncertain{fmt.Errorf("volume %q may have been made by an earlier call, and the driver does not say: %w",
			intent.VolumeName, err)}
	}
	note(&intent.Trouble, claim.CallCreate, err)
	unrecorded := m.update(func(tx *store.Tx) error {
		if !outcome.KeepsIntent() {
			return removeIntent(tx, intent)
		}
		return tx.Provisionings().Put(string(intent.ClaimUID), intent)
	})
	switch {
	case unrecorded != nil:
		return errors.Join(err, unrecorded)
	case outcome == lifecycle.RetryLater:
		return &rejectedError{err}
	}
	return err
}

// isLocal reports whether an error came before the call to the driver or after its
// answer, so that it does not tell the call's outcome.
func isLocal(err error) bool {
	return errors.Is(err, ErrWaiting) || errors.Is(err, plugins.ErrNotRegistered) || errors.Is(err, errStore)
}

// rejectedError is of a request that the driver rejects as such (lifecycle.RetryLater).
type rejectedError struct{ error }

func (r *rejectedError) Unwrap() error { return r.error }

// uncertain hides the class of a driver's error, since the outcome is unknown.
type uncertain struct{ about error }

func (u *uncertain) Error() string { return u.about.Error() }

// save writes the volume and the claim and removes the intent, in one transaction. If
// the claim was deleted or bound to another volume meanwhile, the volume is released,
// and its reclaim policy decides.
func (m *Manager) save(intent *store.Provisioning, volume *corev1.PersistentVolume) error {
	err := m.update(func(tx *store.Tx) error {
		known, err := tx.Volumes().Get(volume.Name)
		if err != nil {
			return err
		}
		if known != nil {
			return fmt.Errorf("PersistentVolume %q was made by another program meanwhile; delete or rename it",
				volume.Name)
		}
		pvc, err := tx.Claims().Get(intent.Claim)
		if err != nil {
			return err
		}
		if pvc == nil || pvc.UID != intent.ClaimUID || pvc.Spec.VolumeName != "" && pvc.Spec.VolumeName != volume.Name {
			volume.Status.Phase = corev1.VolumeReleased
			return errors.Join(tx.Volumes().Put(volume.Name, volume), removeIntent(tx, intent))
		}
		return errors.Join(join(tx, pvc, volume), removeIntent(tx, intent))
	})
	return recording(err)
}

// removeIntent removes the intent of a creation whose outcome is known, and the
// finalizer of its source unless another creation copies that, too.
func removeIntent(tx *store.Tx, intent *store.Provisioning) error {
	if err := tx.Provisionings().Delete(string(intent.ClaimUID)); err != nil || intent.Source == "" {
		return err
	}
	return releaseSource(tx, intent.Source)
}

// keepSource adds the finalizer to a source that is about to be copied.
func keepSource(tx *store.Tx, source string) error {
	return withSource(tx, source, func(object metav1.Object, finalizer string) error {
		if object == nil || object.GetDeletionTimestamp() != nil {
			return fmt.Errorf("the source, %s, is being deleted or gone", source)
		}
		if !slices.Contains(object.GetFinalizers(), finalizer) {
			object.SetFinalizers(append(object.GetFinalizers(), finalizer))
		}
		return nil
	})
}

// releaseSource removes the finalizer of a source that is not being copied any more.
func releaseSource(tx *store.Tx, source string) error {
	intents, err := tx.Provisionings().All()
	if err != nil || slices.ContainsFunc(intents, func(i *store.Provisioning) bool { return i.Source == source }) {
		return err
	}
	return withSource(tx, source, func(object metav1.Object, finalizer string) error {
		if object != nil {
			unprotect(object, finalizer)
		}
		return nil
	})
}

// withSource changes a source. The object is nil if it is gone.
func withSource(tx *store.Tx, source string, change func(object metav1.Object, finalizer string) error) error {
	resource, key, _ := splitKey(source)
	if resource == snapshotResource {
		snapshot, err := tx.Snapshots().Get(key)
		switch {
		case err != nil:
			return err
		case snapshot == nil:
			return change(nil, lifecycle.RestoreFinalizer)
		}
		if err := change(snapshot, lifecycle.RestoreFinalizer); err != nil {
			return err
		}
		return tx.Snapshots().Put(key, snapshot)
	}
	pvc, err := tx.Claims().Get(key)
	switch {
	case err != nil:
		return err
	case pvc == nil:
		return change(nil, lifecycle.CloneFinalizer)
	}
	if err := change(pvc, lifecycle.CloneFinalizer); err != nil {
		return err
	}
	return tx.Claims().Put(key, pvc)
}
