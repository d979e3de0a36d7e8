package volumes

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// reasonAbandoned is the reason of the event for a step that a user gave up.
const reasonAbandoned = "VolumeAbandoned"

// undoneAt decides about NodeUnpublishVolume or NodeUnstageVolume after it
// failed. If neither the path nor a path below it is a mount point, the step counts as
// done in two cases: the driver does not know the volume (NOT_FOUND) or the call
// (UNIMPLEMENTED, from a driver that does not stage any more), or the user has given the
// pod up (AbandonAnnotation). A mounted volume keeps its record: its processes could
// write to storage that has another owner by then.
func (m *Manager) undoneAt(use *store.VolumeUse, path string, failure error) error {
	if failure == nil {
		return nil
	}
	mounts, err := m.options.Mounts.Below(path)
	if err != nil {
		return errors.Join(failure, fmt.Errorf("read the mount table: %w", err))
	}
	unknown := lifecycle.UndoneWithoutCall(failure, path == use.StagingPath)
	if unknown && len(mounts) == 0 {
		m.logger.Warn("the driver does not know the volume or the call; nothing is mounted at the path",
			"volume", use.Handle, "driver", use.Driver, "path", path, "error", failure)
		return nil
	}
	pod, err := m.abandonedBy(use, failure)
	switch {
	case len(mounts) > 0 && (unknown || pod != nil):
		what := "driver " + use.Driver + " does not know the volume or the call"
		if pod != nil {
			what = "the pod is given up"
		}
		// The last one lies on top of the others.
		return errors.Join(fmt.Errorf("%s, but %s is still mounted: end the processes that use it, then 'umount %s': %w",
			what, path, mounts[len(mounts)-1], failure), err)
	case pod == nil:
		return errors.Join(failure, err)
	}
	m.recordAbandoned(use, pod, fmt.Sprintf(
		"the driver did not undo the use at %s, where nothing is mounted any more: %v", path, failure))
	return nil
}

// giveUpAttached is the same for a volume that the driver does not detach. The volume
// was unstaged before: it is not mounted on this machine.
func (m *Manager) giveUpAttached(use *store.VolumeUse, failure error) error {
	pod, err := m.abandonedBy(use, failure)
	if pod == nil {
		return errors.Join(failure, err)
	}
	m.recordAbandoned(use, pod, fmt.Sprintf(
		"volume %q may still be attached to node %q: detach it where the storage is managed: %v", use.Handle, use.NodeID, failure))
	return nil
}

// abandonedBy finds the last pod of a use if it is being deleted and the user gave it
// up; nil otherwise, or if nothing failed.
func (m *Manager) abandonedBy(use *store.VolumeUse, failure error) (found *corev1.Pod, err error) {
	if failure == nil {
		return nil, nil
	}
	err = m.view(func(tx *store.Tx) error {
		pods, err := tx.Pods().Containing(AbandonAnnotation)
		for _, pod := range pods {
			if pod.UID == use.LastPod && pod.DeletionTimestamp != nil && pod.Annotations[AbandonAnnotation] == "true" {
				found = pod
			}
		}
		return err
	})
	return found, err
}

func (m *Manager) recordAbandoned(use *store.VolumeUse, pod *corev1.Pod, text string) {
	m.logger.Warn("a step of a volume is given up, as the pod's annotation says",
		"volume", use.Handle, "driver", use.Driver, "pod", store.KeyOf(pod), "step", text)
	about := append(subjectOf(use).about, journal.Ref{Kind: "Pod", Key: store.KeyOf(pod), UID: string(pod.UID)})
	for _, about := range slices.Compact(about) {
		m.recordEventf(about, true, reasonAbandoned, "%s: %s", use.Label, shorten(text))
	}
}

// Abandon annotates an object that is being deleted as given up (AbandonAnnotation)
// and describes the storage that may remain without a record.
func Abandon(tx *store.Tx, object store.Object) (stays []string, err error) {
	annotate(object)
	switch object := object.(type) {
	case *corev1.Pod:
		return []string{"steps that the drivers of its volumes do not undo are given up where nothing is mounted any more; " +
			"events of reason " + reasonAbandoned + " name them"}, nil
	case *corev1.PersistentVolume:
		return []string{retain(object)}, nil
	case *corev1.PersistentVolumeClaim:
		return abandonClaim(tx, object)
	case *snapshotv1.VolumeSnapshotContent:
		return []string{fmt.Sprintf(
			"driver %s may have a snapshot of volume %q: search for it where the storage is managed",
			object.Spec.Driver, handleOf(object))}, nil
	}
	return nil, nil
}

func handleOf(content *snapshotv1.VolumeSnapshotContent) string {
	if content.Spec.Source.VolumeHandle == nil {
		return lifecycle.SnapshotHandle(content)
	}
	return *content.Spec.Source.VolumeHandle
}

func abandonClaim(tx *store.Tx, pvc *corev1.PersistentVolumeClaim) (stays []string, err error) {
	intent, err := tx.Provisionings().Get(string(pvc.UID))
	if err != nil {
		return nil, err
	}
	if intent != nil && pvc.Spec.VolumeName == "" {
		return []string{fmt.Sprintf(
			"driver %s may have made a volume of the name %q: search for it where the storage is managed",
			intent.Driver, intent.VolumeName)}, nil
	}
	pv, err := tx.Volumes().Get(pvc.Spec.VolumeName)
	if err != nil || pv == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != pvc.UID {
		return nil, err
	}
	annotate(pv)
	stays = []string{retain(pv)}
	if pv.DeletionTimestamp == nil {
		pv.DeletionTimestamp = pvc.DeletionTimestamp
	}
	return stays, tx.Volumes().Put(pv.Name, pv)
}

// retain has the PersistentVolume deleted without a call to the driver.
func retain(pv *corev1.PersistentVolume) (stays string) {
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	if pv.Spec.CSI == nil {
		return "the storage of " + pv.Name + " stays"
	}
	return fmt.Sprintf("volume %q of driver %s stays, with its data: nothing on this machine knows it any more",
		pv.Spec.CSI.VolumeHandle, pv.Spec.CSI.Driver)
}

func annotate(object store.Object) {
	annotations := maps.Clone(object.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AbandonAnnotation] = "true"
	object.SetAnnotations(annotations)
}

// CanAbandon reports whether objects of a kind can be given up.
func CanAbandon(kind string) bool {
	return strings.Contains(" Pod PersistentVolumeClaim PersistentVolume VolumeSnapshotContent ", " "+kind+" ")
}
