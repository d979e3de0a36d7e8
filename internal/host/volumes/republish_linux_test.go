package volumes

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// isDue makes all volumes due to be published again.
func (w *world) isDue() {
	w.manager.node.due.mu.Lock()
	defer w.manager.node.due.mu.Unlock()
	for path := range w.manager.node.due.times {
		w.manager.node.due.times[path] = time.Now()
	}
}

// republishing has two drivers that ask for it, each with the inline volume of a
// pod that is mounted. What the second does with a call is up to before.
func republishing(t *testing.T, before func(ctx context.Context, rpc string) error) (w *world, second *csidriver.Driver) {
	t.Helper()
	w, _ = newServing(t)
	second = csidriver.New("e.example")
	second.Publish, second.Unpublish = mountTmpfs, unmountTmpfs
	second.Before = func(ctx context.Context, rpc string, _ any) error { return before(ctx, rpc) }
	w.register(second, time.Hour)
	yes := true
	for _, name := range []string{"d.example", "e.example"} {
		w.put(func(tx *store.Tx) error {
			return tx.Drivers().Put(name, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{
				RequiresRepublish: &yes, VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral},
			}})
		})
		p := pod(name[:1], "")
		p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: name}}
		w.mount(w.create(p))
		t.Cleanup(func() {
			if err := w.manager.UnmountPod(context.Background(), p); err != nil {
				t.Error(err)
			}
		})
	}
	return w, second
}

// A driver that hangs keeps no other's volumes from being published again.
func TestRepublish_aDriverThatHangsDelaysNoOther(t *testing.T) {
	release, hangs := make(chan struct{}), make(chan struct{}, 100)
	again := false
	w, _ := republishing(t, func(ctx context.Context, rpc string) error {
		if rpc == "NodePublishVolume" && again {
			hangs <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return nil
	})
	again = true
	for _, name := range []string{"d.example", "e.example"} { // each is known to be mounted
		if _, desired, err := w.manager.nextRepublish(name); err != nil || !desired {
			t.Fatal(desired, err)
		}
	}
	w.isDue()
	set := reconcile.NewSet(w.store, w.manager.NodeControllers()...)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- set.Run(ctx) }()
	defer func() {
		close(release)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-hangs
	deadline := time.Now().Add(30 * time.Second)
	for round := 0; w.driver.Count("NodePublishVolume") < 4; round++ { // due again and again
		if time.Now().After(deadline) {
			t.Fatalf("published %d times while the other driver hangs", w.driver.Count("NodePublishVolume"))
		}
		w.isDue()
		w.put(func(tx *store.Tx) error { // a change of a pod enqueues its drivers
			p := get(t, tx.Pods(), "ns/d")
			p.Labels = map[string]string{"round": fmt.Sprint(round)}
			return tx.Pods().Put("ns/d", p)
		})
		time.Sleep(20 * time.Millisecond)
	}
}

// The volume of a pod that is going is not published again, and its driver
// is not requeued twice a second until it is gone.
func TestRepublish_aDeletedPodDoesNotShortenTheWait(t *testing.T) {
	w, _ := republishing(t, func(context.Context, string) error { return nil })
	w.put(func(tx *store.Tx) error {
		p := get(t, tx.Pods(), "ns/d")
		now := metav1.Now()
		p.DeletionTimestamp = &now
		return tx.Pods().Put("ns/d", p)
	})
	if _, _, err := w.manager.nextRepublish("d.example"); err != nil {
		t.Fatal(err)
	}
	w.isDue()
	pause, err := w.manager.republishController().Do(t.Context(), "d.example")
	if err != nil || pause > 0 && pause < 30*time.Second || w.driver.Count("NodePublishVolume") != 1 {
		t.Errorf("requeued after %v, %v, published %d times", pause, err, w.driver.Count("NodePublishVolume"))
	}
}
