package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// Finalizers of snapshots, snapshot-controller's.
const (
	// sourceFinalizer keeps a claim while a snapshot of it is being taken.
	sourceFinalizer   = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
	sourceProtection  = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection"
	contentProtection = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
)

// Reasons of events, snapshot-controller's.
const (
	reasonCreatingSnapshot = "CreatingSnapshot"
	reasonSnapshotCreated  = "SnapshotCreated"
	reasonSnapshotReady    = "SnapshotReady"
	reasonSnapshotInvalid  = "SnapshotValidationError"
	reasonSnapshotSource   = "SnapshotPVCSourceMissing"
	reasonSnapshotClass    = "GetSnapshotClassFailed"
	reasonSnapshotDefault  = "SetDefaultSnapshotClassFailed"
	reasonContentMissing   = "SnapshotContentMissing"
	reasonContentMismatch  = "SnapshotContentMismatch"
	reasonContentMisbound  = "SnapshotContentMisbound"
	reasonContentCreation  = "SnapshotContentCreationFailed"
	reasonSnapshotPending  = "SnapshotDeletePending"
)

// defaultSnapshotClass, "true", makes a VolumeSnapshotClass the default of snapshots that
// name none, for volumes of its driver.
const defaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"

func snapshotAbout(snapshot *snapshotv1.VolumeSnapshot) journal.Ref {
	return journal.Ref{Kind: "VolumeSnapshot", Key: store.KeyOf(snapshot), UID: string(snapshot.UID)}
}

// syncSnapshot brings one VolumeSnapshot closer to its desired state. The controller of
// contents calls the driver.
func (m *Manager) syncSnapshot(_ context.Context, key string) (time.Duration, error) {
	snapshot, err := m.snapshotOf(key)
	if err != nil || snapshot == nil {
		return 0, err
	}
	if snapshot.DeletionTimestamp != nil {
		return 0, m.explain(snapshotResource, snapshotAbout(snapshot), reasonSnapshotPending, m.endSnapshot(snapshot))
	}
	err = m.followContent(snapshot)
	if problem := m.explain(snapshotResource, snapshotAbout(snapshot), reasonContentCreation, err); problem != nil {
		return 0, errors.Join(problem, m.showUnbound(snapshot, problem))
	}
	return 0, m.releaseSnapshotSource(snapshot)
}

// contentName is the name of a snapshot's content: the one it names, or the one that is
// created for it.
func contentName(snapshot *snapshotv1.VolumeSnapshot) string {
	if named := snapshot.Spec.Source.VolumeSnapshotContentName; named != nil {
		return *named
	}
	return "snapcontent-" + string(snapshot.UID)
}

// followContent finds or creates the content, and copies its status.
func (m *Manager) followContent(snapshot *snapshotv1.VolumeSnapshot) error {
	source := snapshot.Spec.Source
	if (source.PersistentVolumeClaimName == nil) == (source.VolumeSnapshotContentName == nil) {
		return waitFor(nil, reasonSnapshotInvalid,
			"spec.source: exactly one of persistentVolumeClaimName and volumeSnapshotContentName is needed")
	}
	content, err := m.contentOf(contentName(snapshot))
	switch {
	case err != nil:
		return err
	case content == nil && lifecycle.BoundContent(snapshot) != "" && isReady(snapshot):
		return waitFor(dependencies(dependency(contentResource, lifecycle.BoundContent(snapshot))), reasonContentMissing,
			"VolumeSnapshotContent %q is missing", lifecycle.BoundContent(snapshot))
	case content == nil && source.VolumeSnapshotContentName != nil:
		return waitFor(dependencies(dependency(contentResource, contentName(snapshot))), reasonContentMissing,
			"VolumeSnapshotContent %q does not exist", contentName(snapshot))
	case content == nil:
		return m.makeContent(snapshot)
	case source.VolumeSnapshotContentName != nil:
		return m.bindContent(snapshot, content)
	case !pointsBack(content, snapshot):
		return waitFor(dependencies(dependency(contentResource, content.Name)), reasonContentMisbound,
			"VolumeSnapshotContent %q is bound to another VolumeSnapshot", content.Name)
	}
	return m.copyStatus(snapshot)
}

func pointsBack(content *snapshotv1.VolumeSnapshotContent, snapshot *snapshotv1.VolumeSnapshot) bool {
	reference := content.Spec.VolumeSnapshotRef
	return reference.Namespace == snapshot.Namespace && reference.Name == snapshot.Name && reference.UID == snapshot.UID
}

// bindContent binds a snapshot to a content that an administrator made.
func (m *Manager) bindContent(snapshot *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent) error {
	on := dependencies(dependency(contentResource, content.Name))
	reference := content.Spec.VolumeSnapshotRef
	switch {
	case content.Spec.Source.SnapshotHandle == nil:
		return waitFor(on, reasonContentMismatch,
			"VolumeSnapshotContent %q was made from a volume, not for a snapshot that existed", content.Name)
	case reference.Namespace != snapshot.Namespace || reference.Name != snapshot.Name,
		reference.UID != "" && reference.UID != snapshot.UID:
		return waitFor(on, reasonContentMisbound, "VolumeSnapshotContent %q names another VolumeSnapshot", content.Name)
	case reference.UID == "":
		err := m.editContent(content, func(current *snapshotv1.VolumeSnapshotContent) {
			if current.Spec.VolumeSnapshotRef.UID == "" {
				current.Spec.VolumeSnapshotRef.UID = snapshot.UID
				if current.Spec.VolumeSnapshotClassName == nil {
					current.Spec.VolumeSnapshotClassName = snapshot.Spec.VolumeSnapshotClassName
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return m.copyStatus(snapshot)
}

// makeContent writes the content of a snapshot of a claim, whose controller then calls
// the driver. A finalizer keeps the claim meanwhile.
func (m *Manager) makeContent(snapshot *snapshotv1.VolumeSnapshot) error {
	key := store.Key(snapshot.Namespace, *snapshot.Spec.Source.PersistentVolumeClaimName)
	on := dependencies(dependency(claimResource, key))
	pvc, err := m.claimOf(key)
	switch {
	case err != nil:
		return err
	case pvc == nil:
		return waitFor(on, reasonSnapshotSource, "the source, %s, does not exist", describeClaim(key))
	case pvc.DeletionTimestamp != nil:
		return waitFor(on, reasonSnapshotSource, "the source, %s, is being deleted", describeClaim(key))
	case pvc.Status.Phase != corev1.ClaimBound:
		return waitFor(on, reasonSnapshotSource, "the source, %s, has no volume yet", describeClaim(key))
	}
	pv, err := m.volumeOf(pvc.Spec.VolumeName)
	switch {
	case err != nil:
		return err
	case pv == nil || pv.Spec.CSI == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != pvc.UID:
		return waitFor(on, reasonSnapshotSource, "the source, %s, has no volume of a CSI driver", describeClaim(key))
	}
	class, err := m.snapshotClass(snapshot, pv.Spec.CSI.Driver)
	if err != nil {
		return err
	}
	content, err := newContent(snapshot, class, pv)
	if err != nil {
		return err
	}
	if err := m.hit("snapshot/intent"); err != nil {
		return err
	}
	if err := m.addContent(snapshot, pvc, content); err != nil {
		return err
	}
	m.recordEvent(snapshotAbout(snapshot), false, reasonCreatingSnapshot,
		fmt.Sprintf("Waiting for a snapshot %s to be created by the CSI driver.", store.KeyOf(snapshot)))
	return m.hit("snapshot/begun")
}

func (m *Manager) addContent(
	snapshot *snapshotv1.VolumeSnapshot, pvc *corev1.PersistentVolumeClaim, content *snapshotv1.VolumeSnapshotContent,
) error {
	key := store.KeyOf(snapshot)
	return m.update(func(tx *store.Tx) error {
		current, err := tx.Snapshots().Get(key)
		if err != nil {
			return err
		}
		source, err := tx.Claims().Get(store.KeyOf(pvc))
		switch {
		case err != nil:
			return err
		case current == nil || current.UID != snapshot.UID || current.DeletionTimestamp != nil:
			return fmt.Errorf("VolumeSnapshot %q changed meanwhile", key)
		case source == nil || source.UID != pvc.UID || source.DeletionTimestamp != nil:
			return fmt.Errorf("%s changed meanwhile", describeClaim(store.KeyOf(pvc)))
		}
		protect(source, sourceFinalizer)
		protect(current, sourceProtection, contentProtection)
		if current.Spec.VolumeSnapshotClassName == nil {
			current.Spec.VolumeSnapshotClassName = content.Spec.VolumeSnapshotClassName
		}
		return errors.Join(tx.Claims().Put(store.KeyOf(pvc), source), tx.Snapshots().Put(key, current),
			tx.SnapshotContents().Put(content.Name, content))
	})
}

// snapshotClass is the class that a snapshot names, or the default one of the driver.
func (m *Manager) snapshotClass(
	snapshot *snapshotv1.VolumeSnapshot, driver string,
) (class *snapshotv1.VolumeSnapshotClass, err error) {
	name := snapshot.Spec.VolumeSnapshotClassName
	var defaults []*snapshotv1.VolumeSnapshotClass
	err = m.view(func(tx *store.Tx) error {
		if name != nil && *name != "" {
			class, err = tx.SnapshotClasses().Get(*name)
			return err
		}
		all, err := tx.SnapshotClasses().All()
		for _, candidate := range all {
			if candidate.Annotations[defaultSnapshotClass] == "true" && candidate.Driver == driver {
				defaults = append(defaults, candidate)
			}
		}
		defaults = claim.PreferGiven(defaults)
		return err
	})
	on := dependencies(dependency("volumesnapshotclasses", "*"))
	switch {
	case err != nil:
		return nil, err
	case name != nil && *name != "" && class == nil:
		return nil, waitFor(on, reasonSnapshotClass, "VolumeSnapshotClass %q does not exist", *name)
	case class == nil && len(defaults) != 1:
		return nil, waitFor(on, reasonSnapshotDefault,
			"spec.volumeSnapshotClassName is missing, and %d VolumeSnapshotClasses are the default one for driver %s",
			len(defaults), driver)
	case class == nil:
		class = defaults[0]
	case class.Driver != driver:
		return nil, waitFor(on, reasonSnapshotClass,
			"VolumeSnapshotClass %q is for driver %s; the volume is of driver %s", class.Name, class.Driver, driver)
	}
	return class, nil
}

// copyStatus copies the content's status to the user's object.
func (m *Manager) copyStatus(snapshot *snapshotv1.VolumeSnapshot) error {
	var before, after *snapshotv1.VolumeSnapshotStatus
	key := store.KeyOf(snapshot)
	err := m.update(func(tx *store.Tx) error {
		current, err := tx.Snapshots().Get(key)
		if err != nil || current == nil || current.UID != snapshot.UID {
			return err
		}
		content, err := tx.SnapshotContents().Get(contentName(current))
		if err != nil || content == nil {
			return err
		}
		before = current.Status
		protect(current, sourceProtection, contentProtection)
		current.Status = statusOf(current.Status, content)
		after = current.Status
		return tx.Snapshots().Put(key, current)
	})
	if err != nil || after == nil {
		return err
	}
	if after.CreationTime != nil && (before == nil || before.CreationTime == nil) {
		m.recordEvent(snapshotAbout(snapshot), false, reasonSnapshotCreated,
			fmt.Sprintf("Snapshot %s was successfully created by the CSI driver.", key))
	}
	if ok(after.ReadyToUse) && (before == nil || !ok(before.ReadyToUse)) {
		m.recordEvent(snapshotAbout(snapshot), false, reasonSnapshotReady,
			fmt.Sprintf("Snapshot %s is ready to use.", key))
	}
	return nil
}

func ok(flag *bool) bool { return flag != nil && *flag }

func statusOf(
	old *snapshotv1.VolumeSnapshotStatus, content *snapshotv1.VolumeSnapshotContent,
) *snapshotv1.VolumeSnapshotStatus {
	status := &snapshotv1.VolumeSnapshotStatus{}
	if old != nil {
		status = old.DeepCopy()
	}
	status.BoundVolumeSnapshotContentName = &content.Name
	no := false
	if status.ReadyToUse == nil {
		status.ReadyToUse = &no
	}
	from := content.Status
	if from == nil {
		return status
	}
	if from.CreationTime != nil {
		taken := metav1.NewTime(time.Unix(0, *from.CreationTime).Truncate(time.Second))
		status.CreationTime = &taken
	}
	if from.RestoreSize != nil {
		size := inBytes(*from.RestoreSize)
		status.RestoreSize = &size
	}
	if from.ReadyToUse != nil {
		status.ReadyToUse = from.ReadyToUse
	}
	status.Error = from.Error.DeepCopy()
	return status
}

// showUnbound writes to a snapshot's status why it has no content.
func (m *Manager) showUnbound(snapshot *snapshotv1.VolumeSnapshot, problem error) error {
	return m.editSnapshot(snapshot, func(current *snapshotv1.VolumeSnapshot) {
		if current.Status == nil {
			current.Status = &snapshotv1.VolumeSnapshotStatus{}
		}
		no := false
		current.Status.ReadyToUse = &no
		current.Status.Error = problemOf(current.Status.Error, problem)
	})
}

// problemOf keeps the time of a problem that is shown already.
func problemOf(old *snapshotv1.VolumeSnapshotError, problem error) *snapshotv1.VolumeSnapshotError {
	text := shorten(problem.Error())
	if old != nil && old.Message != nil && *old.Message == text {
		return old
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	return &snapshotv1.VolumeSnapshotError{Message: &text, Time: &now}
}

// releaseSnapshotSource removes the finalizer of the source claim when no snapshot of it
// is being created.
func (m *Manager) releaseSnapshotSource(snapshot *snapshotv1.VolumeSnapshot) error {
	if snapshot.Spec.Source.PersistentVolumeClaimName == nil {
		return nil
	}
	key := store.Key(snapshot.Namespace, *snapshot.Spec.Source.PersistentVolumeClaimName)
	others, err := m.index.find(snapshotsOf(key))
	if err != nil || len(others) > 0 {
		return err
	}
	pvc, err := m.claimOf(key)
	if err != nil || pvc == nil || !slices.Contains(pvc.Finalizers, sourceFinalizer) {
		return err
	}
	return m.update(func(tx *store.Tx) error { return unprotectSource(tx, key, "") })
}

// unprotectSource removes the finalizer from a claim, unless a snapshot other than the
// excepted one needs it.
func unprotectSource(tx *store.Tx, key, except string) error {
	snapshots, err := tx.Snapshots().All()
	if err != nil {
		return err
	}
	for _, snapshot := range snapshots {
		if store.KeyOf(snapshot) != except && slices.Contains(factsOf(snapshot), snapshotsOf(key)) {
			return nil
		}
	}
	pvc, err := tx.Claims().Get(key)
	if err != nil || pvc == nil {
		return err
	}
	unprotect(pvc, sourceFinalizer)
	return tx.Claims().Put(key, pvc)
}

// endSnapshot completes the deletion of a snapshot, after that of its content if the
// policy is Delete.
func (m *Manager) endSnapshot(snapshot *snapshotv1.VolumeSnapshot) error {
	key := store.KeyOf(snapshot)
	if slices.Contains(snapshot.Finalizers, lifecycle.RestoreFinalizer) {
		target, err := m.copying(dependency(snapshotResource, key))
		return errors.Join(err, waitFor(nil, "", "it is being restored for %s", target))
	}
	if err := m.hit("snapshot-delete/intent"); err != nil {
		return err
	}
	gone, name := false, contentName(snapshot)
	err := m.update(func(tx *store.Tx) error {
		content, err := tx.SnapshotContents().Get(name)
		if err != nil {
			return err
		}
		if content == nil || !pointsBack(content, snapshot) {
			gone = true
			return m.dropSnapshot(tx, snapshot)
		}
		return m.endContentOf(tx, snapshot, content, &gone)
	})
	if err != nil || gone {
		return err
	}
	return waitFor(dependencies(dependency(contentResource, name)), "",
		"VolumeSnapshotContent %q is deleted first", name)
}

func (m *Manager) endContentOf(
	tx *store.Tx, snapshot *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent, gone *bool,
) error {
	if content.Annotations == nil {
		content.Annotations = map[string]string{}
	}
	content.Annotations[claim.VolumeSnapshotKeys().BeingDeleted] = "yes"
	retain := content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentRetain
	if !retain && content.DeletionTimestamp == nil {
		now := metav1.NewTime(time.Now().Truncate(time.Second))
		content.DeletionTimestamp = &now
	}
	if err := tx.SnapshotContents().Put(content.Name, content); err != nil || !retain {
		return err
	}
	*gone = true
	return m.dropSnapshot(tx, snapshot)
}

func (m *Manager) dropSnapshot(tx *store.Tx, snapshot *snapshotv1.VolumeSnapshot) error {
	key := store.KeyOf(snapshot)
	current, err := tx.Snapshots().Get(key)
	if err != nil || current == nil || current.UID != snapshot.UID {
		return err
	}
	if source := snapshot.Spec.Source.PersistentVolumeClaimName; source != nil {
		if err := unprotectSource(tx, store.Key(snapshot.Namespace, *source), key); err != nil {
			return err
		}
	}
	if !unprotect(current, sourceProtection, contentProtection) {
		return tx.Snapshots().Put(key, current)
	}
	return tx.Snapshots().Delete(key)
}
