package volumes

import (
	"context"
	"maps"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// A modification with an uncertain outcome is repeated with the parameters of the first
// call, even if its class was replaced or deleted. The class that is desired by then
// follows.
func TestModify_repeatsTheParametersOfTheFirstCall(t *testing.T) {
	for name, c := range map[string]struct {
		become func(d *daemon, key string)
		class  string
		asked  []string // the iops of the calls
	}{
		"the class is another one": {func(d *daemon, _ string) {
			d.attributes("gold", "d.example", map[string]string{"iops": "2"})
		}, "gold", []string{"1", "1", "2"}},
		"the class is gone": {func(d *daemon, _ string) {
			d.put(func(tx *store.Tx) error { return tx.AttributesClasses().Delete("gold") })
		}, "gold", []string{"1", "1"}},
		"the class is gone, and another is wanted": {func(d *daemon, key string) {
			d.attributes("silver", "d.example", map[string]string{"iops": "3"})
			d.put(func(tx *store.Tx) error { return tx.AttributesClasses().Delete("gold") })
			d.wants(key, attributesNamed("silver"))
		}, "silver", []string{"1", "1", "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var asked []string
			changed := make(chan struct{})
			d := newDaemon(t, modifies, func(driver *csidriver.Driver) {
				driver.Before = func(_ context.Context, _ string, request any) error {
					modify, ok := request.(*csi.ControllerModifyVolumeRequest)
					if !ok {
						return nil
					}
					mu.Lock()
					asked = append(asked, modify.GetMutableParameters()["iops"])
					first := len(asked) == 1
					mu.Unlock()
					if first {
						<-changed
						return csidriver.Fail(codes.DeadlineExceeded, "slow")
					}
					return nil
				}
			})
			key := d.claim("data", protected)
			d.isBound(key)
			d.attributes("gold", "d.example", map[string]string{"iops": "1"})
			d.wants(key, attributesNamed("gold"))
			d.until("the driver is asked", func(*store.Tx) bool {
				mu.Lock()
				defer mu.Unlock()
				return len(asked) == 1
			})
			c.become(d, key)
			close(changed)
			want := map[string]string{"iops": c.asked[len(c.asked)-1]}
			d.until("the volume has the desired class", func(tx *store.Tx) bool {
				pvc := get(t, tx.Claims(), key)
				current := pvc.Status.CurrentVolumeAttributesClassName
				_, kept := pvc.Annotations[modifyAnnotation]
				return current != nil && *current == c.class && pvc.Status.ModifyVolumeStatus == nil && !kept && maps.Equal(d.driver.Modified("id-pvc-uid-data"), want)
			})
			mu.Lock()
			defer mu.Unlock()
			if len(asked) != len(c.asked) {
				t.Fatalf("asked with %v, want %v", asked, c.asked)
			}
			for i := range asked {
				if asked[i] != c.asked[i] {
					t.Errorf("asked with %v, want %v", asked, c.asked)
					break
				}
			}
		})
	}
}
