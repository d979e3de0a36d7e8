package resize

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// another adds a claim of a class that is bound to a volume, like that of the world.
func (w *world) another(name, class string, change func(*corev1.PersistentVolumeClaim)) {
	uid := types.UID("uid-" + name)
	w.driver.AddVolume("handle-"+name, gi)
	w.Add(dataVolume(func(pv *corev1.PersistentVolume) {
		pv.Name, pv.Spec.StorageClassName, pv.Spec.CSI.VolumeHandle = "pv-"+name, class, "handle-"+name
		pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = name, uid
	}), dataClaim(func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Name, pvc.UID, pvc.Spec.VolumeName, pvc.Spec.StorageClassName = name, uid, "pv-"+name, &class
		change(pvc)
	}))
}

// hang makes an RPC hang, and waits until it does in each worker that it may have.
func (w *world) hang(rpc string) (wait func()) {
	w.Env.Workers, w.Env.Timeout = 4, time.Hour
	before := w.driver.Before
	w.driver.Before = func(ctx context.Context, name string, request any) error {
		if volume, ok := request.(interface{ GetVolumeId() string }); ok && name == rpc && volume.GetVolumeId() != "handle-1" {
			<-ctx.Done()
		}
		return before(ctx, name, request)
	}
	return func() {
		w.t.Helper()
		w.Eventually(func() error {
			if n := w.driver.Count(rpc); n < w.Env.Workers {
				return fmt.Errorf("%d calls of %s hang", n, rpc)
			}
			return nil
		})
	}
}

func TestFlows_aClassThatHangsDelaysNoOther(t *testing.T) {
	w := newWorld(t)
	wait := w.hang(expandRPC)
	for i := range 20 {
		w.another(fmt.Sprint("slow-", i), "slow", asking(2))
	}
	w.run()
	wait()
	w.change(asking(2))
	w.reaches("NodeResizePending", 2)
}

func TestFlows_modificationsThatHangDelayNoExpansionOfTheirClass(t *testing.T) {
	w := newWorld(t, class("gold"))
	wait := w.hang(modifyRPC)
	for i := range 20 {
		w.another(fmt.Sprint("slow-", i), "disk", wanting("gold"))
	}
	w.another("quick", "disk", func(*corev1.PersistentVolumeClaim) {})
	w.run()
	wait()
	pvc, err := w.Core.CoreV1().PersistentVolumeClaims("shop").Get(w.Context(), "quick", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	asking(2)(pvc)
	if _, err := w.Core.CoreV1().PersistentVolumeClaims("shop").Update(w.Context(), pvc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Eventually(func() error {
		if size := w.driver.Size("handle-quick"); size != 2*gi {
			return fmt.Errorf("the volume has %d bytes", size)
		}
		return nil
	})
}
