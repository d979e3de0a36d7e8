package provision

import (
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
	w.claims(0, claims)
	took := time.Since(started)
	writes, bytes := w.intentWrites()
	t.Logf("%d claims in %s: %.0f per second, %d writes of intents with %d bytes", claims, took, claims/took.Seconds(), writes, bytes)
	// A slow machine spreads them over more time, and so over more writes.
	commits := int(took / intent.DefaultSpacing)
	if most := max(claims/2, commits+30); writes > most {
		t.Errorf("%d claims took %d writes of intents, more than %d", claims, writes, most)
	}
	if most := claims*2500 + writes*1000; bytes > most {
		t.Errorf("%d claims took %d bytes of intents, more than %d", claims, bytes, most)
	}
}
