package cli

import (
	"bytes"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// The headers and cells are kubectl's (k8s.io/kubernetes pkg/printers, and the
// printer columns of the snapshot CRDs).
func TestTable_isThatOfKubectl(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	then := metav1.NewTime(now.Add(-50 * time.Hour))
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, CreationTimestamp: then}
	}
	gibibyte := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	class, volume, block, gold := "fast", "pv-1", corev1.PersistentVolumeBlock, "gold"
	yes, size := true, int64(1<<30)
	deleted := named("old")
	deleted.DeletionTimestamp = &then
	standard := named("standard")
	standard.Annotations = map[string]string{manifest.DefaultClassAnnotation: "true"}
	cases := []struct {
		kind    string
		wide    bool
		objects []store.Object
		want    string
	}{
		{"pvc", true, []store.Object{
			&corev1.PersistentVolumeClaim{
				ObjectMeta: named("data"),
				Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: volume, StorageClassName: &class, VolumeMode: &block, VolumeAttributesClassName: &gold},
				Status: corev1.PersistentVolumeClaimStatus{
					Phase: corev1.ClaimBound, Capacity: gibibyte,
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod, corev1.ReadWriteOnce},
				},
			},
			&corev1.PersistentVolumeClaim{ObjectMeta: deleted, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}},
		}, `
NAME   STATUS        VOLUME   CAPACITY   ACCESS MODES   STORAGECLASS   VOLUMEATTRIBUTESCLASS   AGE    VOLUMEMODE
data   Bound         pv-1     1Gi        RWO,RWOP       fast           gold                    2d2h   Block
old    Terminating                                                     <unset>                 2d2h   <unset>
`},
		{"pv", false, []store.Object{&corev1.PersistentVolume{
			ObjectMeta: named("pv-1"),
			Spec: corev1.PersistentVolumeSpec{
				Capacity: gibibyte, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: "fast",
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}, ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "data"},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		}}, `
NAME   CAPACITY   ACCESS MODES   RECLAIM POLICY   STATUS   CLAIM          STORAGECLASS   VOLUMEATTRIBUTESCLASS   REASON   AGE
pv-1   1Gi        ROX            Retain           Bound    default/data   fast           <unset>                          2d2h
`},
		{"sc", false, []store.Object{&storagev1.StorageClass{ObjectMeta: standard, Provisioner: "x.example", AllowVolumeExpansion: &yes}}, `
NAME                 PROVISIONER   RECLAIMPOLICY   VOLUMEBINDINGMODE   ALLOWVOLUMEEXPANSION   AGE
standard (default)   x.example     Delete          Immediate           true                   2d2h
`},
		{"vac", false, []store.Object{&storagev1.VolumeAttributesClass{ObjectMeta: named("gold"), DriverName: "x.example"}}, `
NAME   DRIVERNAME   AGE
gold   x.example    2d2h
`},
		{"va", false, []store.Object{&storagev1.VolumeAttachment{
			ObjectMeta: named("csi-1"), Status: storagev1.VolumeAttachmentStatus{Attached: true},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: "x.example", NodeName: "vm", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
		}}, `
NAME    ATTACHER    PV     NODE   ATTACHED   AGE
csi-1   x.example   pv-1   vm     true       2d2h
`},
		{"vs", false, []store.Object{
			&snapshotv1.VolumeSnapshot{
				ObjectMeta: named("snap"),
				Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &class}, VolumeSnapshotClassName: &gold},
				Status: &snapshotv1.VolumeSnapshotStatus{
					ReadyToUse: &yes, RestoreSize: new(resource.MustParse("1Gi")), BoundVolumeSnapshotContentName: &volume, CreationTime: &then,
				},
			},
			&snapshotv1.VolumeSnapshot{ObjectMeta: named("new")},
		}, `
NAME   READYTOUSE   SOURCEPVC   SOURCESNAPSHOTCONTENT   RESTORESIZE   SNAPSHOTCLASS   SNAPSHOTCONTENT   CREATIONTIME   AGE
snap   true         fast                                1Gi           gold            pv-1              2d2h           2d2h
new                                                                                                                    2d2h
`},
		{"vsc", false, []store.Object{&snapshotv1.VolumeSnapshotContent{
			ObjectMeta: named("content"),
			Spec: snapshotv1.VolumeSnapshotContentSpec{
				DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, Driver: "x.example", VolumeSnapshotClassName: &gold,
				VolumeSnapshotRef: corev1.ObjectReference{Namespace: "default", Name: "snap"},
			},
			Status: &snapshotv1.VolumeSnapshotContentStatus{ReadyToUse: &yes, RestoreSize: &size},
		}}, `
NAME      READYTOUSE   RESTORESIZE   DELETIONPOLICY   DRIVER      VOLUMESNAPSHOTCLASS   VOLUMESNAPSHOT   VOLUMESNAPSHOTNAMESPACE   AGE
content   true         1073741824    Delete           x.example   gold                  snap             default                   2d2h
`},
		{"vsclass", false, []store.Object{&snapshotv1.VolumeSnapshotClass{ObjectMeta: named("gold"), Driver: "x.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain}}, `
NAME   DRIVER      DELETIONPOLICY   AGE
gold   x.example   Retain           2d2h
`},
		{"csidrivers", false, []store.Object{&storagev1.CSIDriver{ObjectMeta: named("x.example"), Spec: storagev1.CSIDriverSpec{
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
		}}}, `
NAME        ATTACHREQUIRED   PODINFOONMOUNT   STORAGECAPACITY   TOKENREQUESTS   REQUIRESREPUBLISH   MODES                  AGE
x.example   true             false            false             <unset>         false               Persistent,Ephemeral   2d2h
`},
		{"csinodes", false, []store.Object{&storagev1.CSINode{ObjectMeta: named("vm"), Spec: storagev1.CSINodeSpec{Drivers: make([]storagev1.CSINodeDriver, 2)}}}, `
NAME   DRIVERS   AGE
vm     2         2d2h
`},
		{"ns", false, []store.Object{&corev1.Namespace{ObjectMeta: named("default")}, &corev1.Namespace{ObjectMeta: deleted}}, `
NAME      STATUS        AGE
default   Active        2d2h
old       Terminating   2d2h
`},
		{"secret", false, []store.Object{&corev1.Secret{ObjectMeta: named("key"), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"a": nil}}}, `
NAME   TYPE     DATA   AGE
key    Opaque   1      2d2h
`},
		{"cm", false, []store.Object{&corev1.ConfigMap{ObjectMeta: named("conf"), Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": nil}}}, `
NAME   DATA   AGE
conf   2      2d2h
`},
		{"events", true, []store.Object{&corev1.Event{
			ObjectMeta: named("data.1"), Type: "Warning", Reason: "Failed", Message: "no\n\x1b[31mspace", Count: 3,
			InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}, LastTimestamp: metav1.NewTime(now.Add(-5 * time.Second)),
			Source: corev1.EventSource{Component: "holdfast-host"},
		}}, `
LAST SEEN   TYPE      REASON   OBJECT                       SOURCE          MESSAGE         FIRST SEEN   COUNT   NAME
5s          Warning   Failed   persistentvolumeclaim/data   holdfast-host   no �[31mspace   2d2h         3       data.1
`},
	}
	for _, c := range cases {
		t.Run(c.kind, func(t *testing.T) {
			kind, known := tableKindNamed(c.kind)
			if !known {
				t.Fatal("the kind does not exist")
			}
			var out bytes.Buffer
			if err := newTable(&out, kind, tableStyle{wide: c.wide}).write(c.objects, now); err != nil {
				t.Fatal(err)
			}
			expect(t, "the table", "\n"+out.String(), c.want)
		})
	}
}

func TestTable_hasEveryKind(t *testing.T) {
	for _, kind := range store.Kinds() {
		if found, known := tableKindNamed(kind.Kind); !known || found.kind.GroupVersionKind != kind.GroupVersionKind {
			t.Errorf("get knows no %s", kind.Kind)
		}
	}
}

// What a driver says cannot control the terminal, nor change the order in which it is read.
func TestPrintable_hasNoControls(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb\tc": "a b c", "\x1b[31m": "�[31m", "\u009b31m": "�31m", "\x7f\x00": "��", "a\u202eb\u2066": "a�b�", "ä → 32 %": "ä → 32 %",
	} {
		if got := printable(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
