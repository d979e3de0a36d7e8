package attach

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// TestStandby_takesTheLeaseOverWithAnOldCache: while the watch of a standby is interrupted, the
// process with the lease detaches a volume, and attaches it again in the second row. The
// standby calls the driver for neither.
func TestStandby_takesTheLeaseOverWithAnOldCache(t *testing.T) {
	begun := publishedAttachment("va", "pv", "n1", func(va *storagev1.VolumeAttachment) { va.Status.Attached = false })
	leaving := publishedAttachment("va", "pv", "n1", deleting)
	again := publishedAttachment("va", "pv", "n1", func(va *storagev1.VolumeAttachment) { va.UID = "again" })
	for name, row := range map[string]struct{ before, after *storagev1.VolumeAttachment }{
		"which has an attachment that is gone":          {begun, nil},
		"which lacks a later attachment of the name":    {leaving, again},
		"which has a deletion that has ended meanwhile": {leaving, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, volume("pv"), node("n1"), row.before.DeepCopy())
			standby := New(w.Env, Options{Reconcile: -1})
			w.Start()
			var down atomic.Bool
			down.Store(true)
			w.React("watch", "volumeattachments", func(apiserver.Request) error {
				if down.Load() {
					return apierrors.NewServiceUnavailable("down")
				}
				return nil
			})
			w.BreakWatches()
			gone := row.before.DeepCopy()
			gone.Finalizers = nil
			w.Put(gone)
			w.Delete(gone)
			if row.after != nil {
				w.Add(row.after.DeepCopy())
				w.driver.SetAttached("handle-pv", "id-n1", true)
			}
			w.Run(w.Env, standby)
			calls := func() error {
				if calls := w.driver.Calls(); len(calls) > 0 {
					return fmt.Errorf("the driver was called: %q", calls)
				}
				return nil
			}
			w.Never(200*time.Millisecond, calls)
			down.Store(false)
			w.Eventually(func() error {
				if va, found := standby.attachments.Get("va"); found != (row.after != nil) || found && va.UID != row.after.UID {
					return fmt.Errorf("the cache is old")
				}
				return nil
			})
			w.Never(50*time.Millisecond, calls)
		})
	}
}
