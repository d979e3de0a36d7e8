package volumes

import (
	"context"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// A rejection that the store could not record is a failure, with the back-off of one and
// a retry when a driver registers; the wait for another class is not.
func TestClaims_aRejectionThatIsNotRecordedIsAFailure(t *testing.T) {
	w := newWorld(t)
	w.driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc != "CreateVolume" {
			return nil
		}
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
		return csidriver.Fail(codes.InvalidArgument, "no such speed")
	}
	key := w.claim("data")
	again, err := w.manager.Controllers()[0].Do(t.Context(), key)
	if again != 0 || err == nil || !strings.Contains(err.Error(), "no such speed") {
		t.Errorf("again after %v: %v", again, err)
	}
}

// A request that the driver rejected as invalid is repeated only after its class has
// been replaced.
func TestClaims_aRejectedRequestIsRepeatedWhenItsClassChanges(t *testing.T) {
	refuse := func(_ context.Context, _ string, request any) error {
		create, ok := request.(*csi.CreateVolumeRequest)
		if ok && (create.GetParameters()["speed"] != "fast" || create.GetMutableParameters()["iops"] != "1") {
			return csidriver.Fail(codes.InvalidArgument, "no such speed")
		}
		return nil
	}
	d := newDaemon(t, modifies, func(driver *csidriver.Driver) { driver.Before = refuse })
	d.attributes("silver", "d.example", map[string]string{"iops": "none"})
	key := d.claim("data", protected, attributesNamed("silver"))
	d.awaitEvent("ProvisioningFailed", "no such speed")
	asked := func(times int) func(*store.Tx) bool {
		return func(*store.Tx) bool {
			state := d.set.Queue(claimResource).State(key)
			return !state.Running && !state.Next.IsZero() && d.driver.Count("CreateVolume") == times
		}
	}
	d.until("it was asked once", asked(1))
	d.put(func(tx *store.Tx) error {
		class := get(t, tx.Classes(), "fast")
		class.Parameters = map[string]string{"speed": "fast"}
		return tx.Classes().Put("fast", class)
	})
	d.until("it was asked again", asked(2))
	d.attributes("silver", "d.example", map[string]string{"iops": "1"})
	if pv := d.isBound(key); pv.Status.Phase != corev1.VolumeBound {
		t.Errorf("the volume is %s", pv.Status.Phase)
	}
}
