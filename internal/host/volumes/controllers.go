package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// The resources of the controllers.
const (
	podResource      = "pods"
	claimResource    = "persistentvolumeclaims"
	volumeResource   = "persistentvolumes"
	snapshotResource = "volumesnapshots"
	contentResource  = "volumesnapshotcontents"
)

// The controllers of bound claims, next to that of claims.
const (
	expansions    = "expansions"
	modifications = "modifications"
)

// abandonedClaims is the controller of claims that were deleted while their volumes were
// being created.
const abandonedClaims = "provisionings"

// Controllers are those that bring claims, volumes and snapshots to their desired
// state. Those of claims are a group: a volume is expanded before it is modified,
// since its class may require the size, and neither happens while its claim ends.
func (m *Manager) Controllers() []reconcile.Controller {
	ofClaims := func(name string, sync syncFunc, due func(*corev1.PersistentVolumeClaim) bool) reconcile.Controller {
		return reconcile.Controller{
			Name: name, Group: claimResource, Do: m.run(name, sync), Keys: m.claimKeys(name, due),
			All: m.allClaims(name, due), Partition: m.partitions.partition(claimResource),
		}
	}
	return []reconcile.Controller{
		ofClaims(claimResource, (*Manager).syncClaim, func(*corev1.PersistentVolumeClaim) bool { return true }),
		ofClaims(expansions, (*Manager).syncExpansion, asksForSize),
		ofClaims(modifications, (*Manager).syncModification, asksForClass),
		{
			Name: volumeResource, Do: m.run(volumeResource, (*Manager).syncVolume), Keys: m.volumeKeys,
			All: m.all(volumeResource), Partition: m.partitions.partition(volumeResource),
		},
		{
			Name: snapshotResource, Do: m.run(snapshotResource, (*Manager).syncSnapshot), Keys: m.snapshotKeys,
			All: m.all(snapshotResource),
		},
		{
			Name: contentResource, Do: m.run(contentResource, (*Manager).syncContent), Keys: m.contentKeys,
			All: m.all(contentResource), Partition: m.partitions.partition(contentResource),
		},
		{
			Name: abandonedClaims, Do: m.run(abandonedClaims, (*Manager).syncAbandoned), Keys: m.abandonedKeys,
			All: allProvisionings, Partition: alone,
		},
	}
}

// syncFunc brings an object closer to its desired state, as reconcile.Controller.Do.
type syncFunc func(m *Manager, ctx context.Context, key string) (again time.Duration, err error)

// longestChase is how often in a row a call is repeated because it waits for another
// object than before.
const longestChase = 5

// run makes a controller's Do: waiting is not a failure. A call that begins to wait
// for an object is repeated, since the object may have changed before that was noted.
func (m *Manager) run(controller string, sync syncFunc) func(context.Context, string) (time.Duration, error) {
	return func(ctx context.Context, key string) (time.Duration, error) {
		name, mine := dependency(controller, key), m.as(ctx)
		for calls := 1; ; calls++ {
			again, err := sync(mine, ctx, key)
			if m.waits.set(name, onOf(err)) {
				if calls < longestChase {
					continue
				}
				again = time.Second // the objects that it waits for change all the time
			}
			if err == nil {
				m.said.drop(name)
				m.reasons.drop(name)
			} else {
				m.reasons.set(name, err)
			}
			if errors.Is(err, ErrWaiting) {
				return again, nil
			}
			return again, err
		}
	}
}

// Reason returns the errors of the last calls for an object, and of the waits; "" if the
// object has neither.
func (m *Manager) Reason(resource, key string) string {
	controllers := []string{resource}
	if resource == claimResource {
		controllers = append(controllers, expansions, modifications)
	}
	var reasons []string
	for _, controller := range controllers {
		if err := m.reasons.get(dependency(controller, key)); err != nil {
			reasons = append(reasons, err.Error())
		}
	}
	return strings.Join(reasons, "; ")
}

// ClaimFailure returns the error with which the last call to create or to expand a
// claim's volume failed, if repeating the call does not help (Repeats).
func (m *Manager) ClaimFailure(key string) error {
	for _, controller := range []string{claimResource, expansions} {
		if err := m.reasons.get(dependency(controller, key)); err != nil && !Repeats(err) {
			return err
		}
	}
	return nil
}

// Repeats reports whether the host may succeed where it failed with err without
// a change by the user: another object is being created, or the outcome of a call
// is uncertain.
func Repeats(err error) bool {
	var wait *blocked
	switch {
	case isRejected(err):
		return false
	case errors.As(err, &wait):
		return !slices.ContainsFunc(wait.on, func(name string) bool {
			resource, _, _ := strings.Cut(name, "/")
			return slices.Contains([]string{"secrets", "storageclasses", "volumeattributesclasses"}, resource)
		})
	}
	return errors.Is(err, ErrWaiting) || errors.Is(err, errUncertain)
}

// all lists the keys of a resource, and learns their partitions.
func (m *Manager) all(resource string) func(*store.Tx) ([]string, error) {
	return func(tx *store.Tx) ([]string, error) {
		kind, known := store.KindOf(resource)
		if !known {
			return nil, fmt.Errorf("%s is not a kind of object", resource)
		}
		objects, err := tx.Objects(kind).All()
		keys := make([]string, 0, len(objects))
		for _, object := range objects {
			key := store.KeyOf(object)
			m.partitions.set(dependency(resource, key), partitionOf(object))
			keys = append(keys, key)
		}
		return keys, err
	}
}

// alone puts each key in its own partition, for keys whose driver only the store knows:
// none of them delays another.
func alone(key string) string { return key }

func partitionOf(object store.Object) string {
	switch object := object.(type) {
	case *corev1.PersistentVolumeClaim:
		if object.Spec.StorageClassName != nil {
			return *object.Spec.StorageClassName
		}
	case *corev1.PersistentVolume:
		if object.Spec.CSI != nil {
			return object.Spec.CSI.Driver
		}
	case *snapshotv1.VolumeSnapshotContent:
		return object.Spec.Driver
	}
	return ""
}

// objectOf decodes the changed object once for all controllers, nil if that fails, and
// notes its partition. It is called by one goroutine.
func (m *Manager) objectOf(change store.Change) store.Object {
	if m.changed.Version == change.Version && m.changed.Key == change.Key && m.changedObject != nil {
		return m.changedObject
	}
	object, err := change.Object()
	if err != nil {
		m.logger.Error("a change cannot be read", "kind", change.Kind.Kind, "key", change.Key, "error", err)
		return nil
	}
	m.changed, m.changedObject = change, object
	switch name := dependency(change.Kind.Resource, change.Key); {
	case change.Deleted:
		m.partitions.set(name, "")
		m.said.drop(name)
		m.reasons.drop(name)
	default:
		m.partitions.set(name, partitionOf(object))
	}
	return object
}

// allClaims lists the claims that are due in a controller.
func (m *Manager) allClaims(controller string, due func(*corev1.PersistentVolumeClaim) bool) func(*store.Tx) ([]string, error) {
	return func(tx *store.Tx) (keys []string, err error) {
		claims, err := tx.Claims().All()
		for _, pvc := range claims {
			key := store.KeyOf(pvc)
			m.partitions.set(dependency(claimResource, key), partitionOf(pvc))
			if m.noteDue(controller, key, due(pvc)) {
				keys = append(keys, key)
			}
		}
		return keys, err
	}
}

// noteDue notes whether a claim is due in a controller. It reports whether it is or was
// before: a request that was withdrawn needs a call, too.
func (m *Manager) noteDue(controller, key string, due bool) (process bool) {
	name := dependency(controller, key)
	process = due || m.due.get(name)
	if due {
		m.due.set(name, true)
	} else {
		m.due.drop(name)
	}
	return process
}

// claimKeys returns the claims that a change concerns: those that wait for the object,
// the claim itself, those of a pod, and that of a volume, as far as they are due.
func (m *Manager) claimKeys(controller string, due func(*corev1.PersistentVolumeClaim) bool) func(store.Change) []string {
	return func(change store.Change) []string {
		keys := m.waiting(controller, change)
		switch object := m.objectOf(change).(type) {
		case *corev1.PersistentVolumeClaim:
			if m.noteDue(controller, change.Key, !change.Deleted && due(object)) {
				keys = append(keys, change.Key)
			}
		case *corev1.Pod:
			keys = append(keys, m.onlyDue(controller, ClaimsOf(object)...)...)
		case *corev1.PersistentVolume:
			if claimed := object.Spec.ClaimRef; claimed != nil {
				keys = append(keys, m.onlyDue(controller, store.Key(claimed.Namespace, claimed.Name))...)
			}
			if !change.Deleted && slices.Contains(factsOf(object), isFree(object.Spec.StorageClassName)) {
				keys = append(keys, m.waits.keysFor(controller, isFree(object.Spec.StorageClassName))...)
			}
		}
		return keys
	}
}

func (m *Manager) onlyDue(controller string, keys ...string) []string {
	return slices.DeleteFunc(keys, func(key string) bool { return !m.due.get(dependency(controller, key)) })
}

func (m *Manager) volumeKeys(change store.Change) []string {
	keys := m.waiting(volumeResource, change)
	switch change.Kind.Resource {
	case volumeResource:
		keys = append(keys, change.Key)
	case claimResource:
		if pvc, ok := m.objectOf(change).(*corev1.PersistentVolumeClaim); ok && pvc.Spec.VolumeName != "" {
			keys = append(keys, pvc.Spec.VolumeName)
		}
	case "volumeattachments":
		attachment, ok := m.objectOf(change).(*storagev1.VolumeAttachment)
		if ok && change.Deleted && attachment.Spec.Source.PersistentVolumeName != nil {
			keys = append(keys, *attachment.Spec.Source.PersistentVolumeName)
		}
	}
	return keys
}

// abandonedKeys returns the UID of a deleted claim: its creation may be in progress.
func (m *Manager) abandonedKeys(change store.Change) []string {
	keys := m.waiting("provisionings", change)
	if change.Kind.Resource == claimResource && change.Deleted {
		if pvc, ok := m.objectOf(change).(*corev1.PersistentVolumeClaim); ok {
			keys = append(keys, string(pvc.UID))
		}
	}
	return keys
}

func (m *Manager) snapshotKeys(change store.Change) []string {
	keys := m.waiting(snapshotResource, change)
	switch change.Kind.Resource {
	case snapshotResource:
		keys = append(keys, change.Key)
	case contentResource:
		if content, ok := m.objectOf(change).(*snapshotv1.VolumeSnapshotContent); ok {
			reference := content.Spec.VolumeSnapshotRef
			keys = append(keys, store.Key(reference.Namespace, reference.Name))
		}
	}
	return keys
}

func (m *Manager) contentKeys(change store.Change) []string {
	keys := m.waiting(contentResource, change)
	if change.Kind.Resource == contentResource {
		m.objectOf(change) // for its partition
		keys = append(keys, change.Key)
	}
	return keys
}

func allProvisionings(tx *store.Tx) (keys []string, err error) {
	records, err := tx.Provisionings().All()
	for _, record := range records {
		keys = append(keys, string(record.ClaimUID))
	}
	return keys, err
}

// longestMessage is the API server's limit for an event's message, in bytes.
const longestMessage = 1024

// recordEvent records an event of an object.
func (m *Manager) recordEvent(about journal.Ref, warning bool, reason, message string) {
	m.options.Record(journal.Notice{About: about, Warning: warning, Reason: reason, Message: shorten(message)})
}

func shorten(message string) string {
	const end = "…"
	if len(message) <= longestMessage {
		return message
	}
	return strings.ToValidUTF8(message[:longestMessage-len(end)], "") + end
}

// once records an event unless it equals the controller's last one for the object.
// Progress of the object clears that memory.
func (m *Manager) once(controller string, about journal.Ref, warning bool, reason, message string) {
	name := dependency(controller, about.Key)
	if said := reason + " " + message; m.said.get(name) != said {
		m.said.set(name, said)
		m.recordEvent(about, warning, reason, message)
	}
}

// explain records why a controller makes no progress with an object: once for a wait, at
// each attempt for a failure.
func (m *Manager) explain(controller string, about journal.Ref, reason string, err error) error {
	var wait *blocked
	switch {
	case err == nil:
	case errors.As(err, &wait):
		if wait.reason != "" {
			reason = wait.reason
		}
		m.once(controller, about, !wait.normal, reason, wait.Error())
	default:
		m.recordEvent(about, true, reason, err.Error())
	}
	return err
}
