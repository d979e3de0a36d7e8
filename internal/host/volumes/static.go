package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// Finalizers of claims and volumes, Kubernetes' own.
const (
	claimProtection  = "kubernetes.io/pvc-protection"
	volumeProtection = "kubernetes.io/pv-protection"
)

const reasonFailedDelete = "VolumeFailedDelete"

// volumeFinalizers are the finalizers of a bound PersistentVolume.
func volumeFinalizers(policy corev1.PersistentVolumeReclaimPolicy) []string {
	if policy == corev1.PersistentVolumeReclaimDelete {
		return []string{volumeProtection, claim.ProvisionerFinalizer}
	}
	return []string{volumeProtection}
}

// protect adds finalizers, unless the object is being deleted.
func protect(object metav1.Object, finalizers ...string) {
	if object.GetDeletionTimestamp() != nil {
		return
	}
	for _, finalizer := range finalizers {
		if !slices.Contains(object.GetFinalizers(), finalizer) {
			object.SetFinalizers(append(object.GetFinalizers(), finalizer))
		}
	}
}

// unprotect removes finalizers, and reports whether none remains.
func unprotect(object metav1.Object, finalizers ...string) (none bool) {
	others := slices.DeleteFunc(object.GetFinalizers(), func(f string) bool { return slices.Contains(finalizers, f) })
	object.SetFinalizers(others)
	return len(others) == 0
}

func volumeAbout(pv *corev1.PersistentVolume) journal.Ref {
	return journal.Ref{Kind: "PersistentVolume", Key: pv.Name, UID: string(pv.UID)}
}

// syncVolume brings one PersistentVolume closer to its desired state: its phase, its
// finalizers, its deletion.
func (m *Manager) syncVolume(ctx context.Context, name string) (time.Duration, error) {
	pv, err := m.volumeOf(name)
	if err != nil || pv == nil || pv.Spec.CSI == nil {
		return 0, err
	}
	phase, err := m.phase(pv)
	if err != nil {
		return 0, err
	}
	if phase != pv.Status.Phase {
		return 0, m.enterPhase(pv, phase)
	}
	err = m.endVolume(ctx, pv)
	return 0, m.explain(volumeResource, volumeAbout(pv), reasonFailedDelete, err)
}

// phase is the desired phase of a volume, by its claim.
func (m *Manager) phase(pv *corev1.PersistentVolume) (corev1.PersistentVolumePhase, error) {
	reference := pv.Spec.ClaimRef
	if reference == nil || reference.UID == "" {
		return corev1.VolumeAvailable, nil
	}
	pvc, err := m.claimOf(store.Key(reference.Namespace, reference.Name))
	if err != nil {
		return "", err
	}
	switch {
	case pvc != nil && pvc.UID == reference.UID && pvc.Spec.VolumeName == pv.Name:
		return corev1.VolumeBound, nil
	case pvc != nil && pvc.UID == reference.UID && pvc.Spec.VolumeName == "":
		return corev1.VolumeAvailable, nil // reserved; the claim binds itself
	case pv.Status.Phase == corev1.VolumeReleased:
		return corev1.VolumeReleased, nil
	case pv.Status.Phase == corev1.VolumeBound || pv.Status.Phase == corev1.VolumeFailed:
		// The removal of a claim writes Released in the same transaction (release). If
		// the claim is missing without that, the store was damaged or is an older copy,
		// and reclaiming would delete data that is still in use.
		return corev1.VolumeFailed, nil
	}
	// A volume that was created outside this host and never bound by it may belong to a
	// claim of another cluster. Reclaiming it could delete the only copy of the data.
	return corev1.VolumeAvailable, nil
}

const reasonClaimMissing = "ClaimMissing"

// enterPhase writes the phase of a volume, unless the volume changed since it was
// read: then it is requeued.
func (m *Manager) enterPhase(pv *corev1.PersistentVolume, phase corev1.PersistentVolumePhase) error {
	reason, message := "", ""
	if phase == corev1.VolumeFailed {
		reason, message = reasonClaimMissing, fmt.Sprintf(
			"%s is missing, and nothing says that it was deleted: the volume is kept; to use it again, "+
				"delete this object, which leaves the driver's volume, and apply it and its claim again", claimOf(pv))
		m.once(volumeResource, volumeAbout(pv), true, reason, message)
	}
	return m.editVolume(pv, func(current *corev1.PersistentVolume) {
		if current.ResourceVersion == pv.ResourceVersion {
			current.Status.Phase, current.Status.Reason, current.Status.Message = phase, reason, message
		}
	})
}

// endVolume deletes a released volume whose policy is Delete, and an object that the user
// deleted.
func (m *Manager) endVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	switch due := lifecycle.ReclaimDue(pv); {
	case due == lifecycle.DueDelete:
		return m.reclaim(ctx, pv)
	case pv.DeletionTimestamp == nil:
		return m.protectVolume(pv, due)
	case pv.Status.Phase == corev1.VolumeBound:
		key := store.Key(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
		return waitFor(dependencies(dependency(claimResource, key)), reasonDeletePending,
			"it is deleted when %s is", claimOf(pv))
	}
	// The deletion of the data was not requested: the driver's volume stays. While it
	// is still being detached from this machine, the object identifies it.
	if err := m.unused(pv.Spec.CSI); err != nil && pv.Annotations[AbandonAnnotation] != "true" {
		return err
	}
	return m.removeVolume(pv)
}

// claimOf describes the claim that a volume's claimRef names.
func claimOf(pv *corev1.PersistentVolume) string {
	return describeClaim(store.Key(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name))
}

// unused returns an error while a volume is in use on this machine.
func (m *Manager) unused(source *corev1.CSIPersistentVolumeSource) error {
	user, err := m.inUse(source.Driver, source.VolumeHandle)
	if err == nil && user != "" {
		err = fmt.Errorf("volume %q is still in use by %s", source.VolumeHandle, user)
	}
	return err
}

// protectVolume sets the finalizers of a volume according to its policy, which the user
// may change.
func (m *Manager) protectVolume(pv *corev1.PersistentVolume, due lifecycle.Due) error {
	if due == lifecycle.DueNothing && slices.Contains(pv.Finalizers, volumeProtection) {
		return nil
	}
	return m.editVolume(pv, func(current *corev1.PersistentVolume) {
		protect(current, volumeProtection)
		switch lifecycle.ReclaimDue(current) {
		case lifecycle.DueProtect:
			protect(current, claim.ProvisionerFinalizer)
		case lifecycle.DueRelease:
			unprotect(current, claim.ProvisionerFinalizer)
		}
	})
}

// ProtectDeleted prepares an object for its deletion: a PersistentVolume whose policy is Delete
// gets the finalizer by which its volume is deleted with it. Its controller adds that finalizer
// when it observes the policy, but not once the object is being deleted.
func ProtectDeleted(object store.Object) {
	pv, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return
	}
	if due := lifecycle.ReclaimDue(pv); due == lifecycle.DueProtect || due == lifecycle.DueDelete {
		protect(pv, claim.ProvisionerFinalizer)
	}
}

// reclaim deletes the volume of a released PersistentVolume, then the object.
func (m *Manager) reclaim(ctx context.Context, pv *corev1.PersistentVolume) error {
	source := pv.Spec.CSI
	switch twin, err := m.twin(pv); {
	case err != nil:
		return err
	case twin != "":
		return waitFor(dependencies(dependency(volumeResource, twin)), "",
			"PersistentVolume %q names the same volume", twin)
	}
	if err := m.unused(source); err != nil {
		return err
	}
	copied := dependency(claimResource, store.Key(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name))
	if busy, err := m.copying(copied); err != nil || busy != "" {
		// The end of the copy changes its source, even if the copy failed.
		on := dependencies(dependency(volumeResource, "*"), copied)
		return errors.Join(err, waitFor(on, "", "it is being copied for %s", busy))
	}
	if err := m.hit("reclaim/begin"); err != nil {
		return err
	}
	if err := m.deleteVolume(ctx, pv); err != nil {
		return err
	}
	if err := m.hit("reclaim/called"); err != nil {
		return err
	}
	return m.removeVolume(pv)
}

// twin finds another PersistentVolume that keeps a volume, "" if none does.
func (m *Manager) twin(pv *corev1.PersistentVolume) (string, error) {
	names, err := m.index.find(hasHandle(pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle))
	if err != nil || len(names) < 2 {
		return "", err
	}
	var same []*corev1.PersistentVolume
	for _, name := range names {
		found, err := m.volumeOf(name)
		if err != nil {
			return "", err
		}
		if found != nil {
			same = append(same, found)
		}
	}
	return lifecycle.FindTwin(slices.Values(same), pv, nil), nil
}

// removeVolume removes the host's finalizers from an object, and deletes it if no
// other finalizers are left. Otherwise the object shows as being deleted.
func (m *Manager) removeVolume(pv *corev1.PersistentVolume) error {
	return m.update(func(tx *store.Tx) error {
		current, err := tx.Volumes().Get(pv.Name)
		if err != nil || current == nil || current.UID != pv.UID {
			return err
		}
		if unprotect(current, volumeProtection, claim.ProvisionerFinalizer, claim.AttacherFinalizer(pv.Spec.CSI.Driver)) {
			return tx.Volumes().Delete(pv.Name)
		}
		if current.DeletionTimestamp == nil {
			now := metav1.Now()
			current.DeletionTimestamp = &now
		}
		return tx.Volumes().Put(pv.Name, current)
	})
}

// deleteVolume calls the driver.
func (m *Manager) deleteVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	source := pv.Spec.CSI
	of := subject{
		label: "volume " + pv.Name, about: []journal.Ref{volumeAbout(pv)},
		driver: source.Driver, handle: source.VolumeHandle,
	}
	return m.stepOf(ctx, of, StepDelete, back(), func(ctx context.Context) (string, error) {
		driver, err := m.options.Drivers.Driver(source.Driver)
		if err != nil {
			return "", err
		}
		can, err := driver.Client.ControllerCapabilities(ctx)
		if err != nil {
			return "", err
		}
		if !can.CreateDelete {
			return "", fmt.Errorf("driver %s does not delete volumes (CREATE_DELETE_VOLUME); "+
				"set the reclaim policy of PersistentVolume %q to Retain", source.Driver, pv.Name)
		}
		reference, _ := claim.DeletionSecret(pv)
		secrets, err := m.secret(reference, "DeleteVolume")
		if err != nil && !without(pv.Annotations, err) {
			return "", err
		}
		request := &csi.DeleteVolumeRequest{VolumeId: source.VolumeHandle, Secrets: secrets}
		return source.VolumeHandle, driver.Client.DeleteVolume(ctx, request)
	})
}
