package cloud

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// limits are EC2's limits for an action, with the numbers of passed and refused calls.
type limits struct {
	mu          sync.Mutex
	burst, rate float64
	tokens      float64
	at          time.Time
	others      float64 // calls per second of another client
	passed      int
	refused     int
}

func newLimits(burst, rate, others float64) *limits {
	return &limits{burst: burst, rate: rate, tokens: burst, at: time.Now(), others: others}
}

// call takes 50 ms, as everything does.
func (l *limits) call() outcome {
	time.Sleep(25 * time.Millisecond)
	defer time.Sleep(25 * time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	passed := now.Sub(l.at).Seconds()
	l.at = now
	l.tokens = min(l.burst, max(0, l.tokens+passed*(l.rate-l.others)))
	if l.tokens < 1 {
		l.refused++
		return throttled
	}
	l.tokens--
	l.passed++
	return answered
}

// storm does n calls by so many at a time, each until it is through.
func storm(p *pacer, l *limits, n, atOnce int) time.Duration {
	began := time.Now()
	jobs := make(chan int, n)
	for i := range n {
		jobs <- i
	}
	close(jobs)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for range jobs {
				var t *ticket
				for kind := throttled; kind == throttled; {
					t, _ = p.take(context.Background(), "AttachVolume", t)
					kind = l.call()
					p.done(t, kind)
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// A storm of calls gets most of the rate that EC2 allows and is seldom throttled,
// also if other clients use a part of it.
func TestPace_findsWhatEC2Allows(t *testing.T) {
	for name, c := range map[string]struct {
		burst, rate, others float64
		n, atOnce           int
		refused             float64 // of all calls
		slower              float64 // than the limits demand
	}{
		"the default":                   {50, 5, 0, 5000, 100, 0.02, 1.05},
		"the default, all at once":      {50, 5, 0, 5000, 5000, 0.02, 1.05},
		"the default, few at a time":    {50, 5, 0, 2000, 8, 0.02, 1.05},
		"a short storm":                 {50, 5, 0, 500, 100, 0.02, 1.05},
		"another client takes 80 %":     {50, 5, 4, 1000, 100, 0.1, 1.2},
		"a tenth of the default":        {5, 0.5, 0, 500, 100, 0.15, 1.3},
		"raised to eight times as much": {400, 40, 0, 20000, 500, 0.03, 1.6},
		"no limit":                      {1e9, 1e9, 0, 5000, 100, 0, 1e9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, l := newPacer(t.Context(), PacingOptions{}), newLimits(c.burst, c.rate, c.others)
				took := storm(p, l, c.n, c.atOnce)
				least := time.Duration(max(0, float64(c.n)-c.burst) / (c.rate - c.others) * float64(time.Second))
				t.Logf("%s, at least %s; %d of %d refused", took, least, l.refused, l.refused+l.passed)
				if share := float64(l.refused) / float64(l.refused+l.passed); share > c.refused {
					t.Errorf("%.1f %% of the calls were refused, want at most %.1f %%", 100*share, 100*c.refused)
				}
				if least > 0 && float64(took) > c.slower*float64(least) {
					t.Errorf("it took %s, %.2f times what EC2 demands; want at most %.2f", took, float64(took)/float64(least), c.slower)
				}
				if c.rate > 1e6 && took > time.Duration(c.n/c.atOnce+4)*50*time.Millisecond {
					t.Errorf("it took %s without any limit", took)
				}
			})
		})
	}
}

// Bursts after quiet times are let through, as EC2's bucket has filled up by then.
func TestPace_aBurstAfterAQuietTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newPacer(t.Context(), PacingOptions{}), newLimits(50, 5, 0)
		storm(p, l, 500, 100)
		time.Sleep(5 * time.Minute)
		refused := l.refused
		if took := storm(p, l, 40, 40); took > time.Second || l.refused > refused {
			t.Errorf("40 calls took %s after five quiet minutes, %d were refused", took, l.refused-refused)
		}
		time.Sleep(time.Hour)
		if took := storm(p, l, 50, 50); took > time.Second {
			t.Errorf("50 calls took %s after a quiet hour", took)
		}
		if p.isPaced("AttachVolume") {
			t.Error("it is still paced an hour after the last refusal")
		}
	})
}

// Calls are sent in the order of their arrival, and a refused call keeps its position.
func TestPace_isFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newPacer(t.Context(), PacingOptions{}), newLimits(10, 1, 0)
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				var own *ticket
				for kind := throttled; kind == throttled; {
					own, _ = p.take(t.Context(), "AttachVolume", own)
					kind = l.call()
					p.done(own, kind)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		late := 0
		for at, i := range order {
			late = max(late, at-i)
		}
		if late > 2 {
			t.Errorf("one was overtaken by %d: %v", late, order)
		}
	})
}

// A caller that leaves takes no token from the others, and its error names its wait.
func TestPace_callersThatLeaveTakeNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newPacer(t.Context(), PacingOptions{}), newLimits(50, 5, 0)
		storm(p, l, 100, 100)
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(20*time.Second))))
				defer cancel()
				own, err := p.take(ctx, "AttachVolume", nil)
				if err != nil {
					if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(own.String(), "waited in the queue") {
						t.Errorf("%v, %v", own, err)
					}
					return
				}
				p.done(own, l.call())
			})
		}
		all.Wait()
		for action, a := range p.actions {
			if len(a.waiting) > 0 || a.underWay != 0 {
				t.Errorf("%s: %d wait and %d are under way when all have left", action, len(a.waiting), a.underWay)
			}
		}
		if slices.Contains([]float64{0, -1}, p.actions["AttachVolume"].current()) {
			t.Error("no call is sent any more")
		}
	})
}
