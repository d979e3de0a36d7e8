//go:build machine

package machine

import (
	"flag"
	"strings"
	"testing"
	"time"
)

var (
	reboots = flag.Int("machine.reboots", 1, "how often TestRounds reboots the machine")
	cuts    = flag.Int("machine.cuts", 1, "how often TestRounds cuts its power")
)

// TestRounds_everyUnitComesBackWithItsData reboots a machine under load and cuts its
// power, in turns.
func TestRounds_everyUnitComesBackWithItsData(t *testing.T) {
	load := newLoaded(newLab(t, "base"))
	for round := range max(*reboots, *cuts) {
		if round < *reboots {
			began := time.Now()
			load.rebootRound()
			t.Logf("reboot %d of %d: %.0f s", round+1, *reboots, time.Since(began).Seconds())
		}
		if round < *cuts && !t.Failed() {
			began := time.Now()
			load.cutRound()
			t.Logf("power cut %d of %d: %.0f s", round+1, *cuts, time.Since(began).Seconds())
		}
		if t.Failed() {
			return
		}
	}
}

func (l *loaded) rebootRound() {
	l.t.Helper()
	l.timed("work", l.work)
	// What the load does until the shutdown ends it is acknowledged as well.
	l.shutDown(l.note)
	l.boot()
	l.check()
	l.timed("the shutdown's journal", l.checkShutdown)
}

func (l *loaded) cutRound() {
	l.t.Helper()
	l.timed("work", l.work)
	if l.random.IntN(2) == 0 {
		l.stopFlushing()
	}
	l.Kill()
	l.note()
	// Nothing of the disk's cache, all, or any part of it.
	l.cut([]float64{0, 1, 0.5, l.random.Float64()}[l.random.IntN(4)])
	l.boot()
	l.check()
}

// work lets the load run until it has acknowledged a random number of steps.
func (l *loaded) work() {
	l.t.Helper()
	l.shell("systemctl start churn.service")
	steps := 1 + l.random.IntN(8)
	l.await(func(reports []string) bool {
		n := 0
		for _, r := range reports {
			if strings.HasPrefix(r, "made ") || strings.HasPrefix(r, "grown ") || strings.HasPrefix(r, "deleted ") {
				n++
			}
		}
		return n >= steps
	})
	// Somewhere in the next step.
	time.Sleep(time.Duration(l.random.IntN(1000)) * time.Millisecond)
}

// stopFlushing stops the programs that flush, for a moment in which the disk's cache fills
// with the writes of the one that does not.
func (l *loaded) stopFlushing() {
	l.t.Helper()
	l.shell("systemctl kill --signal STOP foo.service sql.service churn.service; pkill -STOP -f 'machine-guest write pod'")
	time.Sleep(time.Duration(l.random.IntN(2000)) * time.Millisecond)
}
