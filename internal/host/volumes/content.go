package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// Steps of a snapshot.
const (
	StepSnapshot Step = "snapshot"
	// StepUpload is what a driver does with a snapshot between its point in time and when it
	// can be restored.
	StepUpload         Step = "upload"
	StepDeleteSnapshot Step = "delete snapshot"
)

// Reasons of events, csi-snapshotter's.
const (
	reasonSnapshotFailed = "SnapshotCreationFailed"
	reasonContentFailed  = "SnapshotContentCheckandUpdateFailed"
	reasonSnapshotDelete = "SnapshotDeleteError"
)

// contentStep is the next step of a content.
type contentStep string

const (
	contentNothing contentStep = "nothing"
	contentProtect contentStep = "protect" // put the finalizer on
	contentCreate  contentStep = "create"  // request the snapshot until the answer is final
	contentPoll    contentStep = "poll"    // repeat the request until the snapshot is ready
	contentInspect contentStep = "inspect" // find the snapshot that an administrator names
	contentDelete  contentStep = "delete"  // delete the driver's snapshot
	contentRelease contentStep = "release" // remove the object
)

// nextOf decides from the content alone.
func nextOf(content *snapshotv1.VolumeSnapshotContent) contentStep {
	keys := claim.VolumeSnapshotKeys()
	static := content.Spec.Source.SnapshotHandle != nil
	_, marked := content.Annotations[keys.BeingCreated]
	_, unwanted := content.Annotations[keys.BeingDeleted]
	if content.Annotations[AbandonAnnotation] == "true" {
		marked = false
	}
	deletes := content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete
	ended := content.DeletionTimestamp != nil &&
		(static && content.Spec.VolumeSnapshotRef.UID == "" || !marked && unwanted)
	switch {
	case ended && deletes && lifecycle.SnapshotHandle(content) != "":
		return contentDelete
	case ended:
		return contentRelease
	case content.DeletionTimestamp == nil && !slices.Contains(content.Finalizers, keys.Finalizer):
		return contentProtect
	case marked:
		return contentCreate
	case content.Status != nil && ok(content.Status.ReadyToUse):
		return contentNothing
	case static:
		return contentInspect
	case lifecycle.SnapshotHandle(content) != "":
		return contentPoll
	case unwanted || content.DeletionTimestamp != nil:
		return contentNothing // it is not desired any more
	}
	return contentCreate
}

func contentAbout(content *snapshotv1.VolumeSnapshotContent) journal.Ref {
	return journal.Ref{Kind: "VolumeSnapshotContent", Key: content.Name, UID: string(content.UID)}
}

func contentSubject(content *snapshotv1.VolumeSnapshotContent) subject {
	reference := content.Spec.VolumeSnapshotRef
	key := store.Key(reference.Namespace, reference.Name)
	return subject{
		label: "snapshot " + key, driver: content.Spec.Driver, handle: lifecycle.SnapshotHandle(content),
		about: []journal.Ref{{Kind: "VolumeSnapshot", Key: key, UID: string(reference.UID)}, contentAbout(content)},
	}
}

// syncContent takes the next step of one VolumeSnapshotContent.
func (m *Manager) syncContent(ctx context.Context, name string) (time.Duration, error) {
	content, err := m.contentOf(name)
	if err != nil || content == nil {
		return 0, err
	}
	switch next := nextOf(content); next {
	case contentProtect:
		return 0, m.editContent(content, func(current *snapshotv1.VolumeSnapshotContent) {
			protect(current, claim.VolumeSnapshotKeys().Finalizer)
		})
	case contentCreate:
		return 0, m.shown(content, reasonSnapshotFailed, m.createSnapshot(ctx, content))
	case contentPoll, contentInspect:
		return m.poll(ctx, content, next)
	case contentDelete:
		return 0, m.explain(contentResource, contentAbout(content), reasonSnapshotDelete, m.deleteSnapshot(ctx, content))
	case contentRelease:
		return 0, m.removeContent(content)
	}
	m.endUpload(content, nil)
	return 0, nil
}

// shown writes a failure to the content's status.error, from where it is copied to the
// snapshot. An equal value does not change the object.
func (m *Manager) shown(content *snapshotv1.VolumeSnapshotContent, reason string, failure error) error {
	if failure == nil {
		return nil
	}
	m.explain(contentResource, contentAbout(content), reason, failure) //nolint:errcheck // returned below
	err := m.editContent(content, func(current *snapshotv1.VolumeSnapshotContent) {
		status := contentStatus(current)
		status.Error = problemOf(status.Error, failure)
	})
	return errors.Join(failure, err)
}

func contentStatus(content *snapshotv1.VolumeSnapshotContent) *snapshotv1.VolumeSnapshotContentStatus {
	if content.Status == nil {
		content.Status = &snapshotv1.VolumeSnapshotContentStatus{}
	}
	return content.Status
}

// newContent is the content of a snapshot of a claim's volume.
func newContent(
	snapshot *snapshotv1.VolumeSnapshot, class *snapshotv1.VolumeSnapshotClass, pv *corev1.PersistentVolume,
) (*snapshotv1.VolumeSnapshotContent, error) {
	keys := claim.VolumeSnapshotKeys()
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{
			Name: contentName(snapshot), UID: uuid.NewUUID(), Generation: 1, Annotations: map[string]string{},
			CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second)), Finalizers: []string{keys.Finalizer},
		},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef: corev1.ObjectReference{
				APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot",
				Namespace: snapshot.Namespace, Name: snapshot.Name, UID: snapshot.UID,
			},
			DeletionPolicy: class.DeletionPolicy, Driver: class.Driver, VolumeSnapshotClassName: &class.Name,
			Source:           snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &pv.Spec.CSI.VolumeHandle},
			SourceVolumeMode: pv.Spec.VolumeMode,
		},
	}
	if _, err := claim.ParseSnapshotClass(class.Name, class.Parameters); err != nil {
		return nil, err
	}
	reference, err := snapshotSecret(class, namesOf(content))
	if err != nil {
		return nil, err
	}
	if reference != nil {
		content.Annotations[keys.SecretName] = reference.Name
		content.Annotations[keys.SecretNamespace] = reference.Namespace
	}
	return content, nil
}

func namesOf(content *snapshotv1.VolumeSnapshotContent) claim.SnapshotNames {
	reference := content.Spec.VolumeSnapshotRef
	return claim.SnapshotNames{Content: content.Name, Namespace: reference.Namespace, Name: reference.Name}
}

// removeContent removes the object, or the host's finalizer if it has others.
func (m *Manager) removeContent(content *snapshotv1.VolumeSnapshotContent) error {
	m.endUpload(content, errSnapshotDeleted)
	return m.update(func(tx *store.Tx) error {
		current, err := tx.SnapshotContents().Get(content.Name)
		if err != nil || current == nil || current.UID != content.UID || current.DeletionTimestamp == nil {
			return err
		}
		if !unprotect(current, claim.VolumeSnapshotKeys().Finalizer) {
			return tx.SnapshotContents().Put(content.Name, current)
		}
		return tx.SnapshotContents().Delete(content.Name)
	})
}

// deleteSnapshot deletes the driver's snapshot, then the object.
func (m *Manager) deleteSnapshot(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) error {
	handle := lifecycle.SnapshotHandle(content)
	switch twin, err := m.snapshotTwin(content); {
	case err != nil:
		return err
	case twin != "":
		return waitFor(dependencies(dependency(contentResource, twin)), "",
			"%s names the same snapshot", describeContent(twin))
	}
	if err := m.hit("snapshot-delete/begin"); err != nil {
		return err
	}
	of := contentSubject(content)
	err := m.stepOf(ctx, of, StepDeleteSnapshot, back(), func(ctx context.Context) (string, error) {
		driver, err := m.options.Drivers.Driver(content.Spec.Driver)
		if err != nil {
			return "", err
		}
		reference, err := claim.VolumeSnapshotKeys().Secret(content.Annotations)
		if err != nil {
			return "", err
		}
		secrets, err := m.secret(reference, "DeleteSnapshot")
		if err != nil && !without(content.Annotations, err) {
			return "", err
		}
		request := &csi.DeleteSnapshotRequest{SnapshotId: handle, Secrets: secrets}
		return handle, driver.Client.DeleteSnapshot(ctx, request)
	})
	if err != nil {
		return err
	}
	if err := m.hit("snapshot-delete/called"); err != nil {
		return err
	}
	return m.removeContent(content)
}

// snapshotTwin finds another content that keeps a snapshot, "" if none does.
func (m *Manager) snapshotTwin(content *snapshotv1.VolumeSnapshotContent) (string, error) {
	names, err := m.index.find(hasSnapshot(content.Spec.Driver, lifecycle.SnapshotHandle(content)))
	if err != nil || len(names) < 2 {
		return "", err
	}
	var same []lifecycle.SnapshotContent
	for _, name := range names {
		found, err := m.contentOf(name)
		if err != nil {
			return "", err
		}
		if found != nil {
			same = append(same, sharedSnapshot(found))
		}
	}
	return lifecycle.FindSnapshotTwin(slices.Values(same), sharedSnapshot(content)), nil
}

func sharedSnapshot(content *snapshotv1.VolumeSnapshotContent) lifecycle.SnapshotContent {
	return lifecycle.SnapshotContent{
		Name: content.Name, Driver: content.Spec.Driver, Handle: lifecycle.NamedSnapshot(content),
		Deletes: nextOf(content) == contentDelete,
	}
}

// showing is the reason of the event for a failed request.
func showing(next contentStep) string {
	if next == contentCreate {
		return reasonSnapshotFailed
	}
	return reasonContentFailed
}

func describeContent(name string) string { return fmt.Sprintf("VolumeSnapshotContent %q", name) }
