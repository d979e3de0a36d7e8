//go:build kubernetes

package faults

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// exerciseAll creates claims, copies and a snapshot, expands a volume, and deletes
// everything: all kinds of writes of the controllers.
func (w *world) exerciseAll() {
	w.t.Helper()
	w.claims(4, "data")
	w.bound()
	w.snapshot("snap", "data-0")
	w.grow("data-1", "2Gi")
	w.claim("copy", from("", "PersistentVolumeClaim", "data-0"))
	w.ready("snap")
	w.claim("restored", from("snapshot.storage.k8s.io", "VolumeSnapshot", "snap"))
	w.bound()
	w.eventually("the size of data-1", func() string {
		size := w.pvcs()["data-1"].Status.Capacity[corev1.ResourceStorage]
		if size.Cmp(resource.MustParse("2Gi")) != 0 {
			return "it is " + size.String()
		}
		return ""
	})
	w.consistent()
	w.deleteAll()
	w.empty()
}

func (w *world) snapshot(name, claim string) {
	w.t.Helper()
	w.must(w.snapshots.SnapshotV1().VolumeSnapshots(w.name).Create(w.ctx, &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.name},
		Spec: snapshotv1.VolumeSnapshotSpec{
			VolumeSnapshotClassName: &w.name, Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim},
		},
	}, metav1.CreateOptions{}))
}

// ready waits until a snapshot is ready.
func (w *world) ready(name string) {
	w.t.Helper()
	w.eventually("snapshot "+name, func() string {
		s, err := w.snapshots.SnapshotV1().VolumeSnapshots(w.name).Get(w.ctx, name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err.Error()
		case s.Status == nil || s.Status.ReadyToUse == nil || !*s.Status.ReadyToUse:
			return "it is not ready"
		}
		return ""
	})
}

func (w *world) grow(claim, size string) {
	w.t.Helper()
	patch := `{"spec":{"resources":{"requests":{"storage":"` + size + `"}}}}`
	w.must(w.core.CoreV1().PersistentVolumeClaims(w.name).Patch(w.ctx, claim, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
}

func from(group, kind, name string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kind, Name: name}
		if group != "" {
			pvc.Spec.DataSource.APIGroup = &group
		}
	}
}

// withoutNodeExpansion makes a driver whose volumes expand without the kubelet.
func (w *world) withoutNodeExpansion() { w.driver.Changes.NoNodeExpansion = true }

func TestAPIServer_thatFailsLosesAnswersOrIsSlow(t *testing.T) {
	writes := func(r *http.Request) bool { return isWrite(r) && !about(r, "leases") }
	cases := []struct {
		name string
		rule func(*http.Request) fault
	}{
		{"one in three writes conflicts", some(3, fault{status: http.StatusConflict}, writes)},
		{"one in three writes fails with 500", some(3, fault{status: http.StatusInternalServerError}, writes)},
		{"one in three writes fails with 503", some(3, fault{status: http.StatusServiceUnavailable}, writes)},
		{"one in three writes is one too many", some(3, fault{status: http.StatusTooManyRequests, after: time.Second}, writes)},
		{"one in three answers to a write is lost", some(3, fault{lost: true}, writes)},
		{"one in three requests loses its connection", some(3, fault{drop: true}, func(r *http.Request) bool { return !isWatch(r) && !about(r, "leases") })},
		{"everything takes 300 ms longer", some(1, fault{delay: 300 * time.Millisecond}, func(*http.Request) bool { return true })},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.withoutNodeExpansion()
			w.run()
			w.proxy.set(c.rule)
			w.exerciseAll()
		})
	}
}

func TestAPIServer_whoseWatchesBreak(t *testing.T) {
	w := newWorld(t, nil)
	w.withoutNodeExpansion()
	w.run()
	var broken atomic.Int32
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(300 * time.Millisecond); ; {
			select {
			case <-ended:
				tick.Stop()
				return
			case <-tick.C:
				broken.Add(int32(w.proxy.breakWatches())) //nolint:gosec // some dozens
			}
		}
	}()
	w.exerciseAll()
	close(ended)
	<-done
	if broken.Load() == 0 {
		t.Error("no watch was there to break: the test shows nothing")
	}
}

func TestAPIServer_thatIsUnavailableForAWhile(t *testing.T) {
	w := newWorld(t, nil)
	p := w.run()
	w.claims(3, "before")
	w.bound()
	w.proxy.set(func(*http.Request) fault { return fault{drop: true} })
	w.proxy.breakWatches()
	w.claims(3, "meanwhile")
	w.deleteClaim("before-0")
	time.Sleep(4 * time.Second)
	w.proxy.set(nil)
	w.bound()
	w.consistent()
	if code := p.terminate(t); code != 0 {
		t.Errorf("the process ends with %d, want 0: it was asked to", code)
	}
}
