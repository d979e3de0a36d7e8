package volumes

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// What a host does for many claims at once must not grow with their square.
func TestClaims_manyAtOnce(t *testing.T) {
	const many = 500
	d := newDaemon(t)
	began := time.Now()
	d.put(func(tx *store.Tx) error {
		for i := range many {
			name := fmt.Sprintf("c%d", i)
			pvc := newClaim(name)
			if err := tx.Claims().Put("ns/"+name, pvc); err != nil {
				return err
			}
			if err := tx.Pods().Put("ns/p"+name, pod("p"+name, name)); err != nil {
				return err
			}
		}
		return nil
	})
	d.until("all are bound", func(tx *store.Tx) bool {
		bound := 0
		for _, pvc := range all(t, tx.Claims()) {
			if pvc.Status.Phase == corev1.ClaimBound {
				bound++
			}
		}
		return bound == many
	})
	t.Logf("%d claims were bound in %v", many, time.Since(began))
	d.stop()
	began = time.Now()
	d.start("")
	d.isBound(d.claim("late"))
	t.Logf("after a start with them, another one was bound in %v", time.Since(began))
	if calls := d.driver.Count("CreateVolume"); calls != many+1 {
		t.Errorf("%d calls for %d volumes", calls, many+1)
	}
}
