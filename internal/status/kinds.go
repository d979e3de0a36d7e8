package status

import (
	"context"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
)

// The kinds of objects that a mirror has.
const (
	kindPod        = "Pod"
	kindClaim      = "PersistentVolumeClaim"
	kindVolume     = "PersistentVolume"
	kindNode       = "Node"
	kindEvent      = "Event"
	kindClass      = "StorageClass"
	kindAttributes = "VolumeAttributesClass"
	kindDriver     = "CSIDriver"
	kindCSINode    = "CSINode"
	kindCapacity   = "CSIStorageCapacity"
	kindAttachment = "VolumeAttachment"
	kindSnapshot   = "VolumeSnapshot"
	kindContent    = "VolumeSnapshotContent"
)

// Clients read objects of an API server, or of a host.
type Clients struct {
	Core      api.Kubernetes
	Snapshots api.Snapshots
}

// resource is how a kind is listed and watched.
type resource struct {
	kind    string
	example runtime.Object
	lister  func(requests) cache.ListerWatcher
	// clusterOnly is for kinds that a host does not have, custom for those that a
	// cluster may lack.
	clusterOnly, custom bool
}

// requests notify of what becomes of the requests for a kind.
type requests struct {
	// failed is called after a list that failed, lost after such a watch, and watches when
	// one begins.
	failed        func(error)
	lost, watches func()
}

func (c Clients) resources() []resource {
	core, storage, snapshots := c.Core.CoreV1(), c.Core.StorageV1(), c.Snapshots.SnapshotV1()
	return []resource{
		{kind: kindPod, example: &corev1.Pod{}, lister: listing(core.Pods(""))},
		{kind: kindClaim, example: &corev1.PersistentVolumeClaim{}, lister: listing(core.PersistentVolumeClaims(""))},
		{kind: kindVolume, example: &corev1.PersistentVolume{}, lister: listing(core.PersistentVolumes())},
		{kind: kindNode, example: &corev1.Node{}, lister: listing(core.Nodes()), clusterOnly: true},
		{kind: kindEvent, example: &corev1.Event{}, lister: listing(core.Events(""))},
		{kind: kindClass, example: &storagev1.StorageClass{}, lister: listing(storage.StorageClasses())},
		{kind: kindAttributes, example: &storagev1.VolumeAttributesClass{}, lister: listing(storage.VolumeAttributesClasses())},
		{kind: kindDriver, example: &storagev1.CSIDriver{}, lister: listing(storage.CSIDrivers())},
		{kind: kindCSINode, example: &storagev1.CSINode{}, lister: listing(storage.CSINodes())},
		{kind: kindCapacity, example: &storagev1.CSIStorageCapacity{}, lister: listing(storage.CSIStorageCapacities("")), clusterOnly: true},
		{kind: kindAttachment, example: &storagev1.VolumeAttachment{}, lister: listing(storage.VolumeAttachments())},
		{kind: kindSnapshot, example: &snapshotv1.VolumeSnapshot{}, lister: listing(snapshots.VolumeSnapshots("")), custom: true},
		{kind: kindContent, example: &snapshotv1.VolumeSnapshotContent{}, lister: listing(snapshots.VolumeSnapshotContents()), custom: true},
	}
}

// listing adapts a client of a kind to client-go's reflector.
func listing[T api.Object, L runtime.Object](client api.Reader[T, L]) func(requests) cache.ListerWatcher {
	return func(notify requests) cache.ListerWatcher {
		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				list, err := client.List(ctx, options)
				if err != nil && ctx.Err() == nil {
					notify.failed(err)
				}
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				watching, err := client.Watch(ctx, options)
				switch {
				case err == nil:
					notify.watches()
				case ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err): // which a list follows
					notify.lost()
				}
				return watching, err
			},
		}
	}
}
