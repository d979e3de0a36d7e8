package cloud

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// EC2 limits each action of an account and region by a token bucket (EC2 developer guide,
// "Request throttling"). EC2 does not show the number of tokens, and other clients take
// tokens too, so the pace of an action is derived from its answers:
//
//   - An action is not paced until EC2 throttles it. EC2's usual bucket allows a burst of
//     calls at once. Beyond it, first a few and then many calls probe whether EC2 accepts
//     more. So a burst meets the end of the bucket with a few calls, and hardly waits if
//     the bucket has no end.
//   - From then on, calls take tokens from the client's own bucket. Each throttled call
//     lowers its rate a little. The rate returns along a cubic curve that is flat around
//     the rate that was too high, as in TCP CUBIC (RFC 9438).
//   - The call that has waited longest is sent first; a throttled call keeps its number.
const (
	firstProbes   = 5               // calls beyond the usual bucket that probe
	laterProbes   = 100             // calls beyond it, after these succeeded
	probeGrowth   = 4               // factor by which the calls beyond it grow, after that
	decrease      = 0.92            // factor of the rate after a throttled call
	largeDecrease = 0.7             // factor if the rate was lowered recently
	recently      = 5 * time.Second // the time that counts as recently
	firstReturn   = 20 * time.Second
	laterReturn   = 60 * time.Second // until the rate is again the one that was too high
	lowestRate    = 0.1              // calls per second
	goodputSpan   = 30 * time.Second
	unpacedAfter  = 10 * time.Minute // without a throttled call
)

// bucket is EC2's default for an action: burst, and refill per second.
type bucket struct{ burst, rate float64 }

// bucketOf is the published default of an action. It is the first rate after the first
// throttled call, and bounds the saved tokens.
func bucketOf(action string) bucket {
	switch action {
	case "CreateVolume", "DeleteVolume", "CreateSnapshot", "DeleteSnapshot":
		return bucket{100, 5}
	case "CreateTags", "DeleteTags":
		return bucket{100, 10}
	case "AttachVolume", "DetachVolume", "ModifyVolume", "CopyVolumes", "LockSnapshot", "EnableFastSnapshotRestores":
		return bucket{50, 5}
	}
	return bucket{100, 20}
}

// pacer paces all actions.
type pacer struct {
	ctx context.Context // of the client
	off bool

	mu      sync.Mutex
	actions map[string]*pace
}

// pace is the pace of one action; the pacer's lock guards it.
type pace struct {
	action  string
	seed    bucket
	waiting []*ticket // by number
	next    uint64

	underWay int

	usual   float64 // tokens in EC2's usual bucket; below 0: calls beyond it
	usualAt time.Time
	proven  float64 // how far beyond the usual bucket calls succeeded
	tried   float64 // the same for calls that other probes do not confirm yet
	trying  int     // calls under way beyond the proven number

	paced     bool
	rate, top float64       // after the last throttled call, and the rate that was too high
	back      time.Duration // until the rate is top again
	grown     time.Duration // how long calls waited since; the rate grows by it
	tokens    float64
	filled    time.Time   // when tokens were last added
	lowered   time.Time   // when the rate was last lowered
	passed    int         // calls that succeeded since then
	success   []time.Time // of the last calls that succeeded while not paced
	timer     *time.Timer
}

// goodputMost bounds the number of recorded successful calls.
const goodputMost = 4096

// ticket is a call's position in the queue, and then its permission.
type ticket struct {
	of     *pace
	number uint64
	came   time.Time // when the call first came, also if it is repeated
	began  time.Time
	ready  chan struct{}
	ahead  int
	rate   float64
	beyond float64 // calls beyond the usual bucket, when it was sent
	trial  bool    // beyond the proven number
}

// String describes the wait of a call that was not permitted.
func (t *ticket) String() string {
	if t == nil || t.of == nil || math.IsInf(t.rate, 1) {
		return "it waited in the queue"
	}
	return fmt.Sprintf("it waited in the queue behind %d calls of %s, of which EC2 accepts about %.1f per second",
		t.ahead, t.of.action, t.rate)
}

func newPacer(ctx context.Context, o PacingOptions) *pacer {
	return &pacer{ctx: ctx, off: o.Off, actions: map[string]*pace{}}
}

// of finds the pace of an action. The caller holds the lock.
func (p *pacer) of(action string) *pace {
	a := p.actions[action]
	if a == nil {
		a = &pace{action: action, seed: bucketOf(action)}
		p.actions[action] = a
	}
	return a
}

// take waits until a call may be sent; a repeated call passes its last ticket, so that
// it keeps its number. The error is the context's, or that of a closed client.
func (p *pacer) take(ctx context.Context, action string, before *ticket) (*ticket, error) {
	if err := ctx.Err(); err != nil {
		return before, err
	}
	if p.off {
		return &ticket{began: time.Now()}, nil
	}
	p.mu.Lock()
	a := p.of(action)
	t := &ticket{of: a, came: time.Now(), ready: make(chan struct{})}
	if before != nil {
		t.number, t.came = before.number, before.came
	} else {
		a.next++
		t.number = a.next
	}
	at, _ := slices.BinarySearchFunc(a.waiting, t, func(a, b *ticket) int { return cmp.Compare(a.number, b.number) })
	a.waiting = slices.Insert(a.waiting, at, t)
	t.ahead = at
	p.pump(a)
	t.rate = a.current()
	p.mu.Unlock()
	select {
	case <-t.ready:
		return t, nil
	case <-ctx.Done():
		p.abandon(t)
		return t, ctx.Err()
	case <-p.ctx.Done():
		p.abandon(t)
		return t, errClosed
	}
}

// abandon removes a ticket from the queue, or returns its token if it was permitted.
func (p *pacer) abandon(t *ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := t.of
	if i := slices.Index(a.waiting, t); i >= 0 {
		a.waiting = slices.Delete(a.waiting, i, i+1)
		return
	}
	a.sent(t, -1)
	a.usual++
	if a.paced {
		a.tokens++
	}
	p.pump(a)
}

// done records the outcome of a call.
func (p *pacer) done(t *ticket, kind outcome) {
	if t.of == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a, now := t.of, time.Now()
	a.sent(t, -1)
	switch kind {
	case throttled:
		a.refill(now)
		a.slow(t.began, now)
	case answered:
		a.succeeded(t, now)
	}
	p.pump(a)
}

// pump permits the calls that may be sent now, and sets the timer for the next one.
func (p *pacer) pump(a *pace) {
	now := time.Now()
	a.refill(now)
	for len(a.waiting) > 0 && a.admits() {
		t := a.waiting[0]
		a.waiting = slices.Delete(a.waiting, 0, 1)
		if a.paced {
			a.tokens--
		}
		a.usual--
		t.began, t.beyond = now, -a.usual
		t.trial = !a.paced && t.beyond > a.proven
		a.sent(t, 1)
		close(t.ready)
	}
	lacking := a.lacking()
	if len(a.waiting) == 0 || lacking <= 0 || p.ctx.Err() != nil {
		return
	}
	wait := time.Duration(lacking*float64(time.Second)) + time.Millisecond
	if a.timer == nil {
		a.timer = time.AfterFunc(wait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.pump(a)
		})
		return
	}
	a.timer.Reset(wait)
}

// isPaced reports whether EC2 throttles an action.
func (p *pacer) isPaced(action string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.actions[action]
	return a != nil && a.paced
}
