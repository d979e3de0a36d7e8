package provision

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/intent"
)

// TestStorm_needsLittleMoreThanOneWritePerClaim counts what the API server is
// asked to write for many claims at once.
func TestStorm_needsLittleMoreThanOneWritePerClaim(t *testing.T) {
	const claims = 300
	w := newWorld(t, newClass())
	w.run(func(env *cluster.Env, o *Options) { env.Workers, o.ForgetAfter = 100, 0 })
	started := time.Now()
	for i := range claims {
		w.Add(newClaim(fmt.Sprint("c", i)))
	}
	w.Eventually(func() error {
		if n := len(w.Driver.Volumes()); n < claims {
			return fmt.Errorf("%d volumes", n)
		}
		list := 0
		for _, write := range w.Writes() {
			if write.Verb == "create" && write.Resource == "persistentvolumes" {
				list++
			}
		}
		if list < claims {
			return fmt.Errorf("%d PersistentVolumes", list)
		}
		return nil
	})
	took := time.Since(started)
	records := 0
	for _, write := range w.Writes() {
		if write.Resource == "configmaps" {
			records++
		}
	}
	t.Logf("%d claims in %s: %.0f per second, %d writes of intents", claims, took, claims/took.Seconds(), records)
	// A slow machine spreads them over more time, and so over more writes.
	if most := max(claims/2, int(took/intent.DefaultSpacing)); records > most {
		t.Errorf("%d claims took %d writes of intents, more than %d", claims, records, most)
	}
}
