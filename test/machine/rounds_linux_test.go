//go:build machine

package machine

import (
	"flag"
	"strings"
	"testing"
	"time"
)

var rounds = flag.Int("machine.rounds", 1, "how many reboots and power cuts")

// TestReboot_everyUnitComesBackWithItsData reboots under load.
func TestReboot_everyUnitComesBackWithItsData(t *testing.T) {
	load := newLoaded(newLab(t, "base"))
	for round := range *rounds {
		began := time.Now()
		load.work()
		load.note()
		load.reboot()
		load.check()
		load.checkShutdown()
		t.Logf("reboot %d of %d: %.0f s", round+1, *rounds, time.Since(began).Seconds())
		if t.Failed() {
			return
		}
	}
}

// TestPowerCut_losesNothingAcknowledged cuts the power under load.
func TestPowerCut_losesNothingAcknowledged(t *testing.T) {
	load := newLoaded(newLab(t, "base"))
	for round := range *rounds {
		began := time.Now()
		load.work()
		// Nothing of the cache, all, or any part of it.
		kept := []float64{0, 1, 0.5, load.random.Float64()}[load.random.IntN(4)]
		load.note()
		load.cut(kept)
		load.boot()
		load.check()
		t.Logf("power cut %d of %d: %.0f s", round+1, *rounds, time.Since(began).Seconds())
		if t.Failed() {
			return
		}
	}
}

// work lets the load run until it has acknowledged a random number of steps.
func (l *loaded) work() {
	l.t.Helper()
	l.shell("systemctl start churn.service")
	steps := 1 + l.random.IntN(8)
	l.await(func(reports []string) bool {
		n := 0
		for _, r := range reports {
			if strings.HasPrefix(r, "made ") || strings.HasPrefix(r, "deleted ") {
				n++
			}
		}
		return n >= steps
	})
	// Somewhere in the next step.
	time.Sleep(time.Duration(l.random.IntN(1000)) * time.Millisecond)
}
