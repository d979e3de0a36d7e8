package cloud

import (
	"math"
	"slices"
	"time"
)

// sent counts a call that goes, or that is over.
func (a *pace) sent(t *ticket, n int) {
	a.underWay += n
	if t.trial {
		a.trying += n
	}
}

// admits reports whether one more call may go. The first that go beyond the usual
// bucket wait for the answers to all others: they would say nothing before.
func (a *pace) admits() bool {
	if !a.paced && a.usual < 1 && a.proven == 0 && a.underWay > a.trying {
		return false
	}
	return a.lacking() <= 0
}

// lacking is for how many seconds no call may be sent, unless a call under way ends.
func (a *pace) lacking() float64 {
	if a.paced {
		return (1 - a.tokens) / a.current()
	}
	beyond := float64(tries)
	if a.proven > 0 {
		beyond = max(trust, trustMore*a.proven)
	}
	return (1 - a.usual - beyond) / a.seed.rate
}

// went notes a call that was not throttled.
func (a *pace) succeeded(t *ticket, now time.Time) {
	if a.paced {
		a.passed++
		return
	}
	if t.trial {
		a.tried = max(a.tried, t.beyond)
	}
	if a.trying == 0 { // all that tried it went well, not only some
		a.proven = max(a.proven, a.tried)
	}
	a.success = append(a.success, now)
	if len(a.success) > goodputMost {
		a.success = slices.Delete(a.success, 0, goodputMost/2)
	}
}

// refill adds the tokens of the time that has passed. The rate only grows while
// calls wait for it: what is not asked for proves nothing.
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
		a.lower(slightly, now)
		return
	}
	a.tokens = min(a.tokens, 0)
	if !sent.After(a.lowered) {
		return // it was under way when the rate was lowered: nothing new
	}
	since := now.Sub(a.lowered)
	if since < recently {
		a.top = a.current()
		a.lower(much, now)
		return
	}
	top := a.current()
	if a.grown > since/2 { // calls waited all the time: what went through is what EC2 allows
		top = min(top, float64(a.passed)/since.Seconds())
	}
	a.top, a.back = top, laterReturn
	a.lower(slightly, now)
}

func (a *pace) lower(factor float64, now time.Time) {
	a.top = max(a.top, lowestRate)
	a.rate = a.top * factor
	a.grown, a.tokens, a.passed = 0, 0, 0
	a.filled, a.lowered = now, now
}

// goodput is how many calls went well in the last goodputSpan.
func (a *pace) goodput(now time.Time) float64 {
	n := 0
	for i := len(a.success) - 1; i >= 0 && now.Sub(a.success[i]) < goodputSpan; i-- {
		n++
	}
	return float64(n)
}
