//go:build kubernetes

package faults

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// refusals are the codes that the driver returns, by RPC; a test sets and removes them.
type refusals struct {
	by atomic.Pointer[map[string]codes.Code]
}

func (r *refusals) set(by map[string]codes.Code) { r.by.Store(&by) }

func (r *refusals) before(_ context.Context, rpc string, _ any) error {
	if by := r.by.Load(); by != nil {
		if code, found := (*by)[rpc]; found {
			return csidriver.Fail(code, "the array says no")
		}
	}
	return nil
}

func TestAttachment_thatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	var r refusals
	w := newWorld(t, func(d *csidriver.Driver) {
		d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
		d.Before = r.before
	})
	w.run()
	w.claim("data")
	w.bound()
	volume, node := w.pvcs()["data"].Spec.VolumeName, w.name+"-node"
	w.must(w.core.StorageV1().VolumeAttachments().Create(w.ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: w.driver.Name, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	}, metav1.CreateOptions{}))
	w.attachment(func(s storagev1.VolumeAttachmentStatus) bool {
		return s.AttachError != nil && contains(s.AttachError.Message, node)
	})
	r.set(map[string]codes.Code{"ControllerPublishVolume": codes.ResourceExhausted})
	w.must(w.core.CoreV1().Nodes().Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}))
	w.must(w.core.StorageV1().CSINodes().Create(w.ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: w.driver.Name, NodeID: "far-node"}}},
	}, metav1.CreateOptions{}))
	w.attachment(func(s storagev1.VolumeAttachmentStatus) bool {
		return s.AttachError != nil && contains(s.AttachError.Message, "the array says no") &&
			s.AttachError.ErrorCode != nil && *s.AttachError.ErrorCode == int32(codes.ResourceExhausted)
	})
	r.set(map[string]codes.Code{"ControllerUnpublishVolume": codes.Internal})
	w.attachment(func(s storagev1.VolumeAttachmentStatus) bool { return s.Attached && s.AttachError == nil })
	if err := w.core.StorageV1().VolumeAttachments().Delete(w.ctx, w.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.attachment(func(s storagev1.VolumeAttachmentStatus) bool {
		return s.DetachError != nil && contains(s.DetachError.Message, "the array says no")
	})
	w.deleteClaim("data")
	w.hasEvent(volume, "VolumeFailedDelete", "still attached")
	r.set(nil)
	w.empty()
	if _, inUse := w.driver.Left(); len(inUse) > 0 {
		t.Errorf("in use are %v", inUse)
	}
}

// attachment waits until the status of the world's VolumeAttachment matches.
func (w *world) attachment(matches func(storagev1.VolumeAttachmentStatus) bool) {
	w.t.Helper()
	w.eventually("the VolumeAttachment", func() string {
		va, err := w.core.StorageV1().VolumeAttachments().Get(w.ctx, w.name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if !matches(va.Status) {
			return va.Status.String()
		}
		return ""
	})
}

func TestResize_thatFailsSaysWhyAndRecovers(t *testing.T) {
	cases := []struct {
		name  string
		code  codes.Code // of the driver's answer; OK for a size that is too small
		state corev1.ClaimResourceStatus
		words string
	}{
		{"the size is impossible", codes.OutOfRange, corev1.PersistentVolumeClaimControllerResizeInfeasible, "the array says no"},
		{"the driver fails", codes.Internal, corev1.PersistentVolumeClaimControllerResizeInProgress, "the array says no"},
		{"the driver returned a smaller size than requested", codes.OK, corev1.PersistentVolumeClaimControllerResizeInProgress, "5"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var r refusals
			var lies atomic.Bool
			lies.Store(c.code == codes.OK)
			w := newWorld(t, func(d *csidriver.Driver) {
				d.Before = r.before
				d.Changes.Answer = func(size int64) int64 {
					if lies.Load() {
						return 5
					}
					return size
				}
			})
			w.withoutNodeExpansion()
			w.run()
			w.claim("data")
			w.bound()
			if c.code != codes.OK {
				r.set(map[string]codes.Code{"ControllerExpandVolume": c.code})
			}
			w.grow("data", "3Gi")
			w.hasEvent("data", "VolumeResizeFailed", c.words)
			w.eventually("the status", func() string {
				status := w.pvcs()["data"].Status
				if status.AllocatedResourceStatuses[corev1.ResourceStorage] != c.state {
					return status.String()
				}
				return ""
			})
			r.set(nil)
			lies.Store(false)
			w.grow("data", "2Gi") // the user lowers the request
			w.eventually("the size", func() string {
				status := w.pvcs()["data"].Status
				size := status.Capacity[corev1.ResourceStorage]
				// The driver with the wrong answer may have expanded the volume further.
				if size.Cmp(resource.MustParse("2Gi")) < 0 || len(status.AllocatedResourceStatuses) > 0 {
					return status.String()
				}
				return ""
			})
			w.consistent()
		})
	}
}

func TestSnapshot_thatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	var r refusals
	w := newWorld(t, func(d *csidriver.Driver) { d.Before = r.before })
	w.run()
	w.claim("data")
	w.bound()
	r.set(map[string]codes.Code{"CreateSnapshot": codes.ResourceExhausted})
	w.snapshot("snap", "data")
	w.snapshotError("snap", "the array says no")
	r.set(map[string]codes.Code{"DeleteSnapshot": codes.FailedPrecondition})
	w.ready("snap")
	s, err := w.snapshots.SnapshotV1().VolumeSnapshots(w.name).Get(w.ctx, "snap", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.snapshots.SnapshotV1().VolumeSnapshots(w.name).Delete(w.ctx, "snap", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.hasEvent(*s.Status.BoundVolumeSnapshotContentName, "SnapshotDeleteError", "the array says no")
	r.set(nil)
	w.deleteAll()
	w.empty()
}

func TestSnapshot_ofAClassWithAMissingSecretSaysSo(t *testing.T) {
	w := newWorld(t, nil)
	w.run()
	w.claim("data")
	w.bound()
	class := w.name + "-secret"
	w.must(w.snapshots.SnapshotV1().VolumeSnapshotClasses().Create(w.ctx, &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Driver: w.driver.Name, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		Parameters: map[string]string{"csi.storage.k8s.io/snapshotter-secret-name": "absent", "csi.storage.k8s.io/snapshotter-secret-namespace": w.name},
	}, metav1.CreateOptions{}))
	claim := "data"
	w.must(w.snapshots.SnapshotV1().VolumeSnapshots(w.name).Create(w.ctx, &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "snap"},
		Spec:       snapshotv1.VolumeSnapshotSpec{VolumeSnapshotClassName: &class, Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}},
	}, metav1.CreateOptions{}))
	w.snapshotError("snap", "absent")
	w.must(w.core.CoreV1().Secrets(w.name).Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "absent"}}, metav1.CreateOptions{}))
	w.ready("snap")
	w.deleteAll()
	w.empty()
}

// snapshotError waits until the error in a snapshot's status contains the words.
func (w *world) snapshotError(name, words string) {
	w.t.Helper()
	w.eventually("snapshot "+name, func() string {
		s, err := w.snapshots.SnapshotV1().VolumeSnapshots(w.name).Get(w.ctx, name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err.Error()
		case s.Status == nil || s.Status.Error == nil || s.Status.Error.Message == nil:
			return "its status has no error"
		case !contains(*s.Status.Error.Message, words):
			return *s.Status.Error.Message
		}
		return ""
	})
}
