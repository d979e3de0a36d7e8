package provision

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func withSnapshots(_ *cluster.Env, o *Options) { o.Snapshots = true }

func ptr[T any](value T) *T { return &value }

// newSnapshot is a VolumeSnapshot that is ready, and its content.
func newSnapshot(name string) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent) {
	size := resource.MustParse("1Gi")
	snapshot := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-s"},
		Status: &snapshotv1.VolumeSnapshotStatus{
			BoundVolumeSnapshotContentName: ptr("content-" + name), ReadyToUse: ptr(true), RestoreSize: &size,
		},
	}
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: "content-" + name},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: driverName, SourceVolumeMode: ptr(corev1.PersistentVolumeFilesystem),
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: "ns", Name: name, UID: "uid-s"},
		},
		Status: &snapshotv1.VolumeSnapshotContentStatus{ReadyToUse: ptr(true), SnapshotHandle: ptr("snap-1")},
	}
	return snapshot, content
}

func (w *world) snapshotNow(name string) *snapshotv1.VolumeSnapshot {
	snapshot, err := w.Snapshots.SnapshotV1().VolumeSnapshots("ns").Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return snapshot
}

func TestClone_ofAClaim(t *testing.T) {
	w := newWorld(t, append(bound("src"), newClass())...)
	w.Driver.AddVolume("id-pvc-uid-src", 1<<30)
	w.run()
	w.Add(newClaim("a", cloneOf("src")))
	w.saved("pvc-uid-a")
	if got := w.calls()[0].GetVolumeContentSource().GetVolume().GetVolumeId(); got != "id-pvc-uid-src" {
		t.Errorf("made of %q", got)
	}
}

func TestClone_thatCannotBeIsNotAskedFor(t *testing.T) {
	lost := bound("src")
	source, _ := lost[0].(*corev1.PersistentVolumeClaim)
	source.Spec.VolumeName = "lost"
	for want, objects := range map[string][]runtime.Object{`PersistentVolumeClaim "ns/src", does not exist`: nil, "has no volume yet": lost} {
		w := newWorld(t, append(objects, newClass(), newClaim("a", cloneOf("src")))...)
		w.run()
		w.event("Warning ProvisioningFailed ns/a", want)
		if len(w.calls()) > 0 {
			t.Errorf("%s: the driver was called", want)
		}
	}
}

func TestClone_startsAsSoonAsTheSourceIsThere(t *testing.T) {
	for name, claimFirst := range map[string]bool{"the claim first": true, "the volume first": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newClass(), newClaim("a", cloneOf("src")))
			var set *cluster.Set
			w.run(func(env *cluster.Env, _ *Options) {
				env.Retry.Start, env.Retry.Max = time.Hour, time.Hour
				set = env.Set
			})
			w.event("Warning ProvisioningFailed ns/a", "does not exist")
			w.Driver.AddVolume("id-pvc-uid-src", 1<<30)
			objects := bound("src") // the claim and its volume
			if claimFirst {
				w.Add(objects[0])
				w.event("Warning ProvisioningFailed ns/a", "has no volume yet")
				w.Add(objects[1])
			} else {
				w.Add(objects[1])
				w.Eventually(func() error {
					if _, found := set.Volumes().Get("pvc-uid-src"); !found {
						return errors.New("the controller does not know the volume yet")
					}
					return nil
				})
				w.Add(objects[0])
			}
			w.saved("pvc-uid-a")
		})
	}
}

func TestRestore_ofASnapshot(t *testing.T) {
	snapshot, content := newSnapshot("s")
	w := newWorld(t, newClass(), snapshot, content)
	w.run(withSnapshots)
	w.Add(newClaim("a", restoreOf("s")))
	w.saved("pvc-uid-a")
	if got := w.calls()[0].GetVolumeContentSource().GetSnapshot().GetSnapshotId(); got != "snap-1" {
		t.Errorf("made of %q", got)
	}
}

func TestRestore_thatCannotBeIsNotAskedFor(t *testing.T) {
	type change func(*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent)
	for want, change := range map[string]change{
		"is not ready yet": func(s *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) {
			s.Status.ReadyToUse = ptr(false)
		},
		`VolumeSnapshotContent "lost" of the source does not exist`: func(s *snapshotv1.VolumeSnapshot, _ *snapshotv1.VolumeSnapshotContent) {
			s.Status.BoundVolumeSnapshotContentName = ptr("lost")
		},
		"has no snapshotHandle": func(_ *snapshotv1.VolumeSnapshot, c *snapshotv1.VolumeSnapshotContent) { c.Status.SnapshotHandle = nil },
	} {
		snapshot, content := newSnapshot("s")
		change(snapshot, content)
		w := newWorld(t, newClass(), snapshot, content, newClaim("a", restoreOf("s")))
		w.run(withSnapshots)
		w.event("Warning ProvisioningFailed ns/a", want)
		if len(w.calls()) > 0 {
			t.Errorf("%s: the driver was called", want)
		}
	}
}

func TestRestore_changesTheModeWhereAllowed(t *testing.T) {
	snapshot, content := newSnapshot("s")
	content.Spec.SourceVolumeMode = ptr(corev1.PersistentVolumeBlock)
	content.Annotations = map[string]string{lifecycle.AllowModeChangeAnnotation: "true"}
	w := newWorld(t, newClass(), snapshot, content, newClaim("a", restoreOf("s")))
	w.run(withSnapshots)
	w.saved("pvc-uid-a")
}

func TestRestore_startsAsSoonAsTheSnapshotIsReady(t *testing.T) {
	snapshot, content := newSnapshot("s")
	snapshot.Status.ReadyToUse = ptr(false)
	w := newWorld(t, newClass(), snapshot, content, newClaim("a", restoreOf("s")))
	w.run(withSnapshots, func(env *cluster.Env, _ *Options) { env.Retry.Start, env.Retry.Max = time.Hour, time.Hour })
	w.event("Warning ProvisioningFailed ns/a", "is not ready yet")
	ready, _ := newSnapshot("s")
	w.Put(ready)
	w.saved("pvc-uid-a")
}

// TestProtection_lastsAsLongAsAnyCopy: two restores of one snapshot, of which
// the second hangs; the snapshot is deleted meanwhile.
func TestProtection_lastsAsLongAsAnyCopy(t *testing.T) {
	snapshot, content := newSnapshot("s")
	w := newWorld(t, newClass(), snapshot, content)
	w.controllerManager()
	w.run(withSnapshots)
	w.Add(newClaim("a", restoreOf("s")))
	w.saved("pvc-uid-a")
	w.Eventually(func() error {
		if now := w.snapshotNow("s"); has(now.Finalizers, lifecycle.RestoreFinalizer) {
			return errors.New("nothing is restored, and the snapshot is held")
		}
		return nil
	})
	stuck := make([]error, 50)
	for i := range stuck {
		stuck[i] = csidriver.Fail(codes.Aborted, "still copying")
	}
	w.answer(stuck...)
	w.Add(newClaim("b", restoreOf("s")))
	w.event("Warning ProvisioningFailed ns/b", "still copying")
	w.Delete(snapshot)
	if now := w.snapshotNow("s"); now == nil || !slices.Contains(now.Finalizers, lifecycle.RestoreFinalizer) {
		t.Fatalf("the snapshot is gone while it is restored: %v", now)
	}
	w.saved("pvc-uid-b")
	w.Eventually(func() error {
		if w.snapshotNow("s") != nil {
			return errors.New("the snapshot is still held")
		}
		return nil
	})
}

// TestProtection_endsWithAClaimThatIsDeleted is external-provisioner#1507.
func TestProtection_endsWithAClaimThatIsDeleted(t *testing.T) {
	w := newWorld(t, append(bound("src"), newClass())...)
	w.Driver.AddVolume("id-pvc-uid-src", 1<<30)
	w.answer(csidriver.Fail(codes.Internal, "cannot"), csidriver.Fail(codes.Internal, "cannot"))
	w.run(func(env *cluster.Env, _ *Options) { env.Retry.Start, env.Retry.Max = time.Hour, time.Hour })
	pvc := newClaim("a", cloneOf("src"))
	w.Add(pvc)
	w.event("Warning ProvisioningFailed ns/a", "cannot")
	if now := w.claimNow("src"); !has(now.Finalizers, lifecycle.CloneFinalizer) {
		t.Fatalf("the source is not kept: %v", now.Finalizers)
	}
	w.Delete(pvc)
	w.Eventually(func() error {
		if now := w.claimNow("src"); has(now.Finalizers, lifecycle.CloneFinalizer) {
			return errors.New("the source is still held")
		}
		return nil
	})
}

func TestProtection_isNotInsistedOnWithoutTheRight(t *testing.T) {
	snapshot, content := newSnapshot("s")
	w := newWorld(t, newClass(), snapshot, content)
	w.React("patch", "volumesnapshots", func(q apiserver.Request) error {
		return apierrors.NewForbidden(snapshotv1.Resource("volumesnapshots"), q.Name, fmt.Errorf("no right"))
	})
	w.run(withSnapshots)
	w.Add(newClaim("a", restoreOf("s")))
	w.saved("pvc-uid-a")
}
