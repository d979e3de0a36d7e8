//go:build kubernetes

package faults

import (
	"strconv"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// wrong is a claim that cannot be provisioned: the user's mistake, the words of the
// event, and the correction, if one is possible.
type wrong struct {
	parameters map[string]string
	change     func(*corev1.PersistentVolumeClaim)
	before     func(*world)
	words      []string
	mend       func(*world)
}

func sized(size string, then func(*corev1.PersistentVolumeClaim)) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
		then(pvc)
	}
}

func attributes(class string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) { pvc.Spec.VolumeAttributesClassName = &class }
}

func (w *world) attributesClass(name, driver string) {
	w.t.Helper()
	w.must(w.core.StorageV1().VolumeAttributesClasses().Create(w.ctx, &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driver, Parameters: map[string]string{"iops": "1"},
	}, metav1.CreateOptions{}))
}

// foreign makes a snapshot that belongs to another driver.
func (w *world) foreign() {
	w.t.Helper()
	handle, class := "far-away", w.name+"-foreign"
	w.must(w.snapshots.SnapshotV1().VolumeSnapshotContents().Create(w.ctx, &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: "foreign.holdfast.dev", DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain,
			Source:            snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: &handle},
			VolumeSnapshotRef: corev1.ObjectReference{Name: "foreign", Namespace: w.name},
		},
	}, metav1.CreateOptions{}))
	w.must(w.snapshots.SnapshotV1().VolumeSnapshots(w.name).Create(w.ctx, &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign", Namespace: w.name},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: &class}},
	}, metav1.CreateOptions{}))
	// As its own driver's sidecar would.
	status := `{"status":{"readyToUse":true,"snapshotHandle":"far-away"}}`
	w.must(w.snapshots.SnapshotV1().VolumeSnapshotContents().Patch(w.ctx, class, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"))
	w.ready("foreign")
}

func (w *world) source(name string) {
	w.t.Helper()
	w.claim(name, sized("2Gi", func(*corev1.PersistentVolumeClaim) {}))
	w.bound(name)
}

func TestClaim_thatCannotBeProvisionedGetsAnEvent(t *testing.T) {
	const group = "snapshot.storage.k8s.io"
	cases := map[string]wrong{
		"an unknown reserved key": {
			parameters: map[string]string{"csi.storage.k8s.io/fstypo": "ext4"}, words: []string{"csi.storage.k8s.io/fstypo"},
		},
		"two filesystem types": {
			parameters: map[string]string{"csi.storage.k8s.io/fstype": "ext4", "fstype": "xfs"}, words: []string{"fstype"},
		},
		"half a secret": {
			parameters: map[string]string{"csi.storage.k8s.io/provisioner-secret-name": "s"},
			words:      []string{"csi.storage.k8s.io/provisioner-secret-namespace"},
		},
		"a secret's name with an unknown token": {
			parameters: map[string]string{"csi.storage.k8s.io/provisioner-secret-name": "${pvc.nam}", "csi.storage.k8s.io/provisioner-secret-namespace": "default"},
			words:      []string{"pvc.nam"},
		},
		"a missing secret": {
			parameters: map[string]string{"csi.storage.k8s.io/provisioner-secret-name": "absent", "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}"},
			words:      []string{"absent", "not found"},
			mend: func(w *world) {
				w.must(w.core.CoreV1().Secrets(w.name).Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "absent"}}, metav1.CreateOptions{}))
			},
		},
		"a selector": {
			change: func(pvc *corev1.PersistentVolumeClaim) {
				pvc.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			},
			words: []string{"selector"},
		},
		"a missing snapshot": {
			change: sized("2Gi", from(group, "VolumeSnapshot", "absent")), words: []string{"absent"},
			mend: func(w *world) { w.source("source"); w.snapshot("absent", "source"); w.ready("absent") },
		},
		"a foreign snapshot": {
			before: (*world).foreign, change: from(group, "VolumeSnapshot", "foreign"), words: []string{"foreign.holdfast.dev"},
		},
		"a snapshot larger than the claim": {
			before: func(w *world) { w.source("source"); w.snapshot("snap", "source"); w.ready("snap") },
			change: from(group, "VolumeSnapshot", "snap"), words: []string{"snap", "needs 2Gi"},
		},
		"a missing source": {
			change: from("", "PersistentVolumeClaim", "absent"), words: []string{"absent"},
			mend: func(w *world) { w.claim("absent"); w.bound("absent") },
		},
		"a source larger than the claim": {
			before: func(w *world) { w.source("source") }, change: from("", "PersistentVolumeClaim", "source"), words: []string{"source", "2Gi"},
		},
		"a missing VolumeAttributesClass": {
			change: attributes("absent-class"), words: []string{"absent-class"},
			mend: func(w *world) { w.attributesClass("absent-class", w.driver.Name) },
		},
		"a VolumeAttributesClass of another driver": {
			before: func(w *world) { w.attributesClass("foreign-class", "foreign.holdfast.dev") },
			change: attributes("foreign-class"), words: []string{"foreign-class", "foreign.holdfast.dev"},
		},
	}
	w := newWorld(t, modifies)
	w.run()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { c.try(t, w) })
	}
}

// try creates the claim in a new namespace, with the shared driver.
func (c wrong) try(t *testing.T, shared *world) {
	t.Helper()
	w := shared.apart(t, c.parameters)
	if c.before != nil {
		c.before(w)
	}
	made := len(w.driver.Volumes())
	changes := []func(*corev1.PersistentVolumeClaim){}
	if c.change != nil {
		changes = append(changes, c.change)
	}
	w.claim("data", changes...)
	w.hasEvent("data", "ProvisioningFailed", c.words...)
	if now := len(w.driver.Volumes()); now != made {
		t.Errorf("a volume was made: there are %d, not %d", now, made)
	}
	if c.mend != nil {
		c.mend(w)
		w.bound("data")
		w.consistent()
	}
	w.deleteAll()
	w.empty()
}

// apart returns a world with the same driver and another namespace and class.
func (w *world) apart(t *testing.T, parameters map[string]string) *world {
	t.Helper()
	part := *w
	part.t, part.ctx = t, t.Context()
	part.name = w.name + "-" + strconv.Itoa(int(worlds.Add(1)))
	part.must(w.core.CoreV1().Namespaces().Create(part.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: part.name}}, metav1.CreateOptions{}))
	part.class(part.name, parameters)
	part.snapshotClass()
	return &part
}

// modifies makes a driver that modifies volumes, and whose snapshots have the size of
// their sources.
func modifies(d *csidriver.Driver) {
	d.Snapshots.Size = 2 << 30
	d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
}
