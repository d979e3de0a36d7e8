package cloud

import (
	"math"
	"slices"
	"time"
)

// sent counts a call that is sent (n is 1) or has ended (-1).
func (a *pace) sent(t *ticket, n int) {
	a.underWay += n
	if t.trial {
		a.trying += n
	}
}

// admits reports whether another call may be sent. The first calls beyond the usual
// bucket wait for the answers to all others, because they prove nothing before.
func (a *pace) admits() bool {
	if !a.paced && a.usual < 1 && a.proven == 0 && a.underWay > a.trying {
		return false
	}
	return a.lacking() <= 0
}

// lacking is the number of seconds until a call may be sent, unless a call under way
// ends earlier.
func (a *pace) lacking() float64 {
	if a.paced {
		return (1 - a.tokens) / a.current()
	}
	beyond := float64(firstProbes)
	if a.proven > 0 {
		beyond = max(laterProbes, probeGrowth*a.proven)
	}
	return (1 - a.usual - beyond) / a.seed.rate
}

// succeeded records a call that was not throttled.
func (a *pace) succeeded(t *ticket, now time.Time) {
	if a.paced {
		a.passed++
		return
	}
	if t.trial {
		a.tried = max(a.tried, t.beyond)
	}
	if a.trying == 0 { // all probes have ended
		a.proven = max(a.proven, a.tried)
	}
	a.success = append(a.success, now)
	if len(a.success) > goodputMost {
		a.success = slices.Delete(a.success, 0, goodputMost/2)
	}
}

// refill adds the tokens for the time that has passed. The rate grows only while calls
// wait for it, because an unused rate proves nothing.
func (a *pace) refill(now time.Time) {
	a.usual = min(a.seed.burst, a.usual+a.seed.rate*now.Sub(a.usualAt).Seconds())
	a.usualAt = now
	if !a.paced {
		return
	}
	passed := now.Sub(a.filled)
	if passed <= 0 {
		return
	}
	a.filled = now
	a.tokens = min(a.tokens+a.current()*passed.Seconds(), max(1, 0.8*a.seed.burst))
	if len(a.waiting) > 0 {
		a.grown += passed
		return
	}
	if now.Sub(a.lowered) > unpacedAfter {
		a.paced, a.proven, a.tried = false, 0, 0
	}
}

// current is the rate now, in calls per second.
func (a *pace) current() float64 {
	if !a.paced {
		return math.Inf(1)
	}
	x := a.grown.Seconds()/a.back.Seconds() - 1
	return max(lowestRate, a.top+(a.top-a.rate)*x*x*x)
}

// slow lowers the rate after a call that was sent at the given time was throttled.
func (a *pace) slow(sent, now time.Time) {
	if !a.paced {
		a.paced, a.back = true, firstReturn
		a.top = max(a.seed.rate, (a.goodput(now)-a.seed.burst)/goodputSpan.Seconds())
		a.success = nil
		a.lower(decrease, now)
		return
	}
	a.tokens = min(a.tokens, 0)
	if !sent.After(a.lowered) {
		return // it was sent before the rate was lowered
	}
	since := now.Sub(a.lowered)
	if since < recently {
		a.top = a.current()
		a.lower(largeDecrease, now)
		return
	}
	top := a.current()
	if a.grown > since/2 { // calls waited most of the time: EC2 allows the rate that passed
		top = min(top, float64(a.passed)/since.Seconds())
	}
	a.top, a.back = top, laterReturn
	a.lower(decrease, now)
}

func (a *pace) lower(factor float64, now time.Time) {
	a.top = max(a.top, lowestRate)
	a.rate = a.top * factor
	a.grown, a.tokens, a.passed = 0, 0, 0
	a.filled, a.lowered = now, now
}

// goodput is how many calls succeeded in the last goodputSpan.
func (a *pace) goodput(now time.Time) float64 {
	n := 0
	for i := len(a.success) - 1; i >= 0 && now.Sub(a.success[i]) < goodputSpan; i-- {
		n++
	}
	return float64(n)
}
