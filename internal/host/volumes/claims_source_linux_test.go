package volumes

import (
	"testing"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// A claim is kept while snapshots of it are to be taken. One that is deleted before its
// content is created keeps the claim no longer.
func TestDeleteClaim_afterASnapshotThatWasNeverBegun(t *testing.T) {
	d := newDaemon(t)
	key := d.claim("a", protected)
	d.isBound(key)
	d.snapshot("s", "a") // there is no class for it
	d.put(func(tx *store.Tx) error {
		pvc, err := tx.Claims().Get(key)
		if err != nil {
			return err
		}
		protect(pvc, sourceFinalizer) // as for a snapshot that was taken meanwhile
		return tx.Claims().Put(key, pvc)
	})
	d.erase(claimResource, key)
	d.awaitEvent(reasonDeletePending, "a snapshot is being taken of it")
	d.put(func(tx *store.Tx) error { return tx.Snapshots().Delete("ns/s") })
	d.isGone(claimResource, key)
}
