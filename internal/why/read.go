package why

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Errors of a Reader. It returns ErrNotFound also for a kind that is not served.
var (
	ErrNotFound  = errors.New("not found")
	ErrForbidden = errors.New("forbidden")
)

// Kind is a kind of object and its place in the API: group/version/resource/kind.
type Kind string

// The kinds that are read.
const (
	pods          Kind = "/v1/pods/Pod"
	claims        Kind = "/v1/persistentvolumeclaims/PersistentVolumeClaim"
	volumes       Kind = "/v1/persistentvolumes/PersistentVolume"
	secrets       Kind = "/v1/secrets/Secret"
	configMaps    Kind = "/v1/configmaps/ConfigMap"
	nodes         Kind = "/v1/nodes/Node"
	events        Kind = "/v1/events/Event"
	classes       Kind = "storage.k8s.io/v1/storageclasses/StorageClass"
	drivers       Kind = "storage.k8s.io/v1/csidrivers/CSIDriver"
	csiNodes      Kind = "storage.k8s.io/v1/csinodes/CSINode"
	attachments   Kind = "storage.k8s.io/v1/volumeattachments/VolumeAttachment"
	attributes    Kind = "storage.k8s.io/v1/volumeattributesclasses/VolumeAttributesClass"
	snapshots     Kind = "snapshot.storage.k8s.io/v1/volumesnapshots/VolumeSnapshot"
	contents      Kind = "snapshot.storage.k8s.io/v1/volumesnapshotcontents/VolumeSnapshotContent"
	grants        Kind = "gateway.networking.k8s.io/v1/referencegrants/ReferenceGrant"
	grantsBeta    Kind = "gateway.networking.k8s.io/v1beta1/referencegrants/ReferenceGrant"
	snapshotKinds Kind = "snapshot.storage.k8s.io/v1/volumesnapshotclasses/VolumeSnapshotClass"
)

func (k Kind) part(i int) string { return strings.Split(string(k), "/")[i] }

// Name is the kind's name, such as Pod.
func (k Kind) Name() string { return k.part(3) }

// Path is the path in the API of the objects of a kind, or of one of them.
func (k Kind) Path(namespace, name string) string {
	path := "/api/" + k.part(1)
	if k.part(0) != "" {
		path = "/apis/" + k.part(0) + "/" + k.part(1)
	}
	if namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	path += "/" + k.part(2)
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

// Reader reads objects as JSON.
type Reader interface {
	// Get reads one object; ErrNotFound if there is none.
	Get(ctx context.Context, kind Kind, namespace, name string) ([]byte, error)
	// List reads the objects of a kind; namespace "" selects all namespaces. The
	// selector is a field selector, and may be "".
	List(ctx context.Context, kind Kind, namespace, selector string) ([]json.RawMessage, error)
}

// Cache is a Reader that has objects of some kinds in memory, decoded. Callers only read
// them.
type Cache interface {
	// Cached returns an object, nil if there is none. ok is false for a kind that is not
	// in memory.
	Cached(kind Kind, namespace, name string) (object any, ok bool)
	// CachedList is List for objects in memory.
	CachedList(kind Kind, namespace, selector string) (objects []any, ok bool)
}

// Host is a Reader of a host, which also has a journal, registrations and mounts.
type Host interface {
	// Calls returns the steps for an object that are in flight or failed last.
	Calls(ctx context.Context, kind, key string) ([]Call, error)
	// Registered lists the drivers that are registered.
	Registered(ctx context.Context) ([]string, error)
	// Mounts lists the mounted volumes of a pod, and whether each answers.
	Mounts(ctx context.Context, pod string) ([]Mount, error)
}

// Mount is a volume of a pod that is mounted on a host. Error is empty if it
// answers.
type Mount struct {
	Volume, Driver, Path, Error string
}

// Call is a step for a volume that failed or has not ended.
type Call struct {
	Step, Code, Error string
	Driver            string
	Attempts          int
	Running           bool
	Since, Next       time.Time
	// Progress is how far a running step is, "" if the driver does not say that.
	Progress string
}

// get reads one object. It returns nil if there is none or it may not be read.
func get[T any](w *walk, kind Kind, namespace, name string) *T {
	if cache, has := w.reader.(Cache); has {
		if known, ok := cache.Cached(kind, namespace, name); ok {
			object, _ := known.(*T)
			return object
		}
	}
	data, err := w.reader.Get(w.ctx, kind, namespace, name)
	if err == nil {
		object := new(T)
		if err = json.Unmarshal(data, object); err == nil {
			return object
		}
	}
	if !errors.Is(err, ErrNotFound) {
		w.unreadable[kind] = true
		w.readFailed(kind.Name()+" "+key(namespace, name), err)
	}
	return nil
}

// exists reports whether an object exists. It returns true if the object may not be read.
func (w *walk) exists(kind Kind, namespace, name string) bool {
	if cache, has := w.reader.(Cache); has {
		if known, ok := cache.Cached(kind, namespace, name); ok {
			return known != nil
		}
	}
	_, err := w.reader.Get(w.ctx, kind, namespace, name)
	if err != nil && !errors.Is(err, ErrNotFound) {
		w.readFailed(kind.Name()+" "+key(namespace, name), err)
	}
	return !errors.Is(err, ErrNotFound)
}

func list[T any](w *walk, kind Kind, namespace, selector string) []T {
	if cache, has := w.reader.(Cache); has {
		if known, ok := cache.CachedList(kind, namespace, selector); ok {
			return decoded[T](known)
		}
	}
	items, err := w.reader.List(w.ctx, kind, namespace, selector)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	var all []T
	for _, data := range items {
		var object T
		if err = json.Unmarshal(data, &object); err != nil {
			break
		}
		all = append(all, object)
	}
	if err != nil {
		w.unreadable[kind] = true
		w.readFailed(kind.part(2), err)
	}
	return all
}

// decoded copies objects that a Cache has, without what they point to.
func decoded[T any](known []any) []T {
	all := make([]T, 0, len(known))
	for _, one := range known {
		if object, ok := one.(*T); ok {
			all = append(all, *object)
		}
	}
	return all
}

func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func (w *walk) pod(namespace, name string) *corev1.Pod {
	return get[corev1.Pod](w, pods, namespace, name)
}

func (w *walk) claim(namespace, name string) *corev1.PersistentVolumeClaim {
	return get[corev1.PersistentVolumeClaim](w, claims, namespace, name)
}

func (w *walk) volume(name string) *corev1.PersistentVolume {
	return get[corev1.PersistentVolume](w, volumes, "", name)
}

func (w *walk) snapshot(namespace, name string) *snapshotv1.VolumeSnapshot {
	return get[snapshotv1.VolumeSnapshot](w, snapshots, namespace, name)
}

func (w *walk) driver(name string) *storagev1.CSIDriver {
	return get[storagev1.CSIDriver](w, drivers, "", name)
}

func evidence(kind Kind, namespace, name, field string) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", kind.Name(), key(namespace, name), field))
}
