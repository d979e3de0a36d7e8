package cli

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host"
)

// localDriverName is the plugin name of the backend local, and localClassName the name
// of its classes, which are those of the chart.
const (
	localDriverName = "local.holdfast.dev"
	localClassName  = "holdfast-local"
)

// builtin is the local driver as a part of a host.
func (c driverConfig) builtin() host.Builtin {
	return host.Builtin{
		Name: localDriverName, Object: localDriverObject(), Class: localClass(), SnapshotClass: localSnapshotClass(),
		Serve: c.serveFor, Remains: c.local.remains,
	}
}

// localDriverObject is the CSIDriver of the local driver in a cluster.
func localDriverObject() *storagev1.CSIDriver {
	attach, podInfo := false, true
	policy := storagev1.FileFSGroupPolicy
	return &storagev1.CSIDriver{
		TypeMeta:   metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSIDriver"},
		ObjectMeta: metav1.ObjectMeta{Name: localDriverName},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired: &attach, PodInfoOnMount: &podInfo, FSGroupPolicy: &policy,
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent,
				storagev1.VolumeLifecycleEphemeral},
		},
	}
}

// localClass is the StorageClass of the chart's values.
func localClass() *storagev1.StorageClass {
	reclaim, binding, expansion := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingWaitForFirstConsumer, true
	return &storagev1.StorageClass{
		TypeMeta:    metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		ObjectMeta:  metav1.ObjectMeta{Name: localClassName},
		Provisioner: localDriverName, ReclaimPolicy: &reclaim, VolumeBindingMode: &binding, AllowVolumeExpansion: &expansion,
	}
}

// localSnapshotClass is the VolumeSnapshotClass of the chart's values.
func localSnapshotClass() *snapshotv1.VolumeSnapshotClass {
	return &snapshotv1.VolumeSnapshotClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1", Kind: "VolumeSnapshotClass"},
		ObjectMeta: metav1.ObjectMeta{Name: localClassName},
		Driver:     localDriverName, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
}
