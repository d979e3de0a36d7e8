//go:build kubernetes

package faults

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// waitFor waits until a process has logged the words.
func (w *world) waitFor(p *process, words string) {
	w.t.Helper()
	w.eventually("the log", func() string {
		if !contains(p.log.String(), words) {
			return "it does not say " + words
		}
		return ""
	})
}

// two starts a leader, behind its own proxy, and a standby, with a lease of the
// given duration. A test in which a slow leader must not lose it needs a long one.
func (w *world) two(lease time.Duration) (leader *process, between *proxy, standby *process) {
	w.t.Helper()
	between = newProxy(w.t)
	short := []string{
		"--leader-election-lease-duration=" + lease.String(), "--leader-election-renew-deadline=" + (lease * 2 / 3).String(),
		"--leader-election-retry-period=500ms",
	}
	leader = w.runBehind(between, short...)
	w.waitFor(leader, "Successfully acquired lease")
	standby = w.runBehind(w.proxy, short...)
	w.waitFor(standby, "Attempting to acquire leader lease")
	return leader, between, standby
}

func TestLease_aLostLeaseEndsTheProcessAndAnotherContinues(t *testing.T) {
	var calls, most atomic.Int32
	w := newWorld(t, func(d *csidriver.Driver) {
		d.Creation.Strict = true
		d.Before = func(_ context.Context, rpc string, _ any) error {
			if rpc != "CreateVolume" {
				return nil
			}
			defer calls.Add(-1)
			if now := calls.Add(1); now > most.Load() {
				most.Store(now)
			}
			time.Sleep(200 * time.Millisecond)
			return nil
		}
	})
	leader, between, _ := w.two(6 * time.Second)
	between.set(func(r *http.Request) fault {
		if about(r, "leases") {
			return fault{status: http.StatusServiceUnavailable}
		}
		return fault{}
	})
	w.claims(6, "data")
	if code := leader.wait(t, testTimeout); code == 0 || !contains(leader.log.String(), "the lease was lost") {
		t.Errorf("the process that lost its lease ends with %d and says %s", code, leader.log.end())
	}
	w.claims(3, "later")
	w.bound()
	w.consistent()
	if most.Load() > 9 {
		t.Errorf("%d volumes were made at once, for 9 claims: two processes were at work", most.Load())
	}
}

func TestLease_ofAProcessThatIsKilledInTheMiddleOfCalls(t *testing.T) {
	var g gate
	w := newWorld(t, func(d *csidriver.Driver) {
		d.Creation.Strict = true
		d.After = func(_ context.Context, rpc string, _ any) error {
			if rpc == "CreateVolume" || rpc == "CreateSnapshot" {
				g.pass()
			}
			return nil
		}
	})
	t.Cleanup(g.open)
	leader, _, _ := w.two(15 * time.Second)
	w.claim("kept")
	w.bound()
	g.close()
	w.claims(4, "data")
	w.snapshot("snap", "kept")
	w.eventually("calls that hang", func() string {
		if g.held.Load() < 5 {
			return "there are not all five yet"
		}
		return ""
	})
	leader.kill()
	w.deleteClaim("data-0")
	w.deleteClaim("data-1")
	g.open()
	w.bound("kept", "data-2", "data-3")
	w.ready("snap")
	w.consistent()
	w.deleteAll()
	w.empty()
}

// The next leader does not wait until the lease expires (docs/reference/ebs.md).
func TestLease_isReleasedOnSIGTERM(t *testing.T) {
	w := newWorld(t, nil)
	const lease = 2 * time.Minute
	leader, _, standby := w.two(lease)
	begun := time.Now()
	if code := leader.terminate(t); code != 0 {
		t.Errorf("it ends with %d", code)
	}
	w.waitFor(standby, "Successfully acquired lease")
	if waited := time.Since(begun); waited > lease/2 {
		t.Errorf("the other one waited %v, as if the lease had to expire", waited)
	}
	w.claim("data")
	w.bound()
}
