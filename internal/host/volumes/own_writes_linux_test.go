package volumes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// A driver whose error messages differ has the host write each of them into the object.
// These writes shorten no back-off, neither that of the call nor that of another call
// for the same claim.
func TestControllers_theirOwnWritesDoNotShortenTheBackOff(t *testing.T) {
	var mu sync.Mutex
	calls := map[string][]time.Time{}
	failing := []string{"ControllerExpandVolume", "ControllerModifyVolume", "CreateSnapshot"}
	d := newDaemon(t, modifies, func(driver *csidriver.Driver) {
		driver.Before = func(_ context.Context, rpc string, _ any) error {
			if !slices.Contains(failing, rpc) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			calls[rpc] = append(calls[rpc], time.Now())
			return csidriver.Fail(codes.Internal, fmt.Sprintf("failure %d", len(calls[rpc])))
		}
	})
	key := d.claim("data", protected)
	d.isBound(key)
	d.put(func(tx *store.Tx) error {
		return tx.SnapshotClasses().Put("snap", &snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: "snap", Annotations: map[string]string{defaultSnapshotClass: "true"}},
			Driver:     "d.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		})
	})
	d.put(func(tx *store.Tx) error {
		class := get(t, tx.Classes(), "fast")
		yes := true
		class.AllowVolumeExpansion = &yes
		return tx.Classes().Put("fast", class)
	})
	d.snapshot("s", "data")
	tried := func(rpc string, times int) func(*store.Tx) bool {
		return func(*store.Tx) bool {
			mu.Lock()
			defer mu.Unlock()
			return len(calls[rpc]) >= times
		}
	}
	d.until("the snapshot is begun", tried("CreateSnapshot", 1)) // with the claim's finalizer
	d.attributes("gold", "d.example", map[string]string{"iops": "9"})
	d.wants(key, func(p *corev1.PersistentVolumeClaim) {
		p.Spec.Resources.Requests = sizeList("2Gi")
		attributesNamed("gold")(p)
	})
	const tries = 4
	for _, rpc := range failing {
		d.until(rpc+" was retried", tried(rpc, tries))
	}
	mu.Lock()
	defer mu.Unlock()
	for rpc, times := range calls {
		if took := times[tries-1].Sub(times[0]); took < (1+2+4)*reconcile.FirstPause {
			t.Errorf("%d calls of %s within %v", tries, rpc, took)
		}
	}
}
