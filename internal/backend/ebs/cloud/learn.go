package cloud

import (
	"slices"
	"sync"
	"time"
)

// What is remembered of how long a kind of transition takes.
const (
	lessons        = 8                // looks that found something done
	lessonLifetime = 10 * time.Minute // counted from the look, never extended
	probeEvery     = 6                // looks that were in time, until one is tried earlier
	probeStep      = 0.015            // how much earlier, to begin with
	probeMost      = 0.25
	closeEnough    = 0.025 // of the expected time: no reason to look for an earlier one
)

// firstGuess is how long EC2 usually takes for a kind of transition; 0 for one
// that nobody knows.
func firstGuess(kind string) time.Duration {
	switch kind {
	case "create":
		return 1500 * time.Millisecond
	case "attach", "detach", "modify":
		return 2 * time.Second
	case "snapshot":
		return 5 * time.Second
	}
	return 0
}

// guess is the time of a kind that nothing is known of yet.
func (l *learner) guess(kind string) time.Duration {
	if l.first > 0 {
		return l.first
	}
	return firstGuess(kind)
}

// learner knows when to look first.
type learner struct {
	first time.Duration // stands for firstGuess when above 0
	mu    sync.Mutex
	kinds map[string]*lesson
}

// lesson is what is known of one kind.
type lesson struct {
	done  []sample // latest looks that found something done, oldest first
	early sample   // the latest a look found that nothing was
	inRow int      // looks in time since the last that was tried earlier
	step  float64
	probe bool // the next look is tried earlier
}

// sample is how long after its beginning a transition was looked at.
type sample struct {
	took time.Duration
	at   time.Time
}

func (s sample) counts(now time.Time) bool {
	return !s.at.IsZero() && now.Sub(s.at) < lessonLifetime
}

func (l *learner) of(kind string) *lesson {
	if l.kinds == nil {
		l.kinds = map[string]*lesson{}
	}
	one := l.kinds[kind]
	if one == nil {
		one = &lesson{step: probeStep}
		l.kinds[kind] = one
	}
	return one
}

// expected is when a transition of the kind is likely to be done, after its beginning.
func (l *learner) expected(kind string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.of(kind)
	usual := one.usual(l.guess(kind), time.Now())
	if one.probe {
		return time.Duration(float64(usual) * (1 - one.step))
	}
	return usual
}

// usual is what a fast transition takes, by the looks that count: not the
// fastest of all, but the next. Slower ones are found by looking again.
func (o *lesson) usual(guess time.Duration, now time.Time) time.Duration {
	o.done = slices.DeleteFunc(o.done, func(s sample) bool { return !s.counts(now) })
	if len(o.done) == 0 {
		return guess
	}
	took := make([]time.Duration, len(o.done))
	for i, s := range o.done {
		took[i] = s.took
	}
	slices.Sort(took)
	return took[min(1, len(took)-1)]
}

// learn takes in one look at several transitions of a kind: for how long those
// had lasted that were done, and those that were not.
func (l *learner) learn(kind string, done, not []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, now := l.of(kind), time.Now()
	usual := one.usual(l.guess(kind), now)
	if len(done) == 0 {
		if longest := slices.Max(not); longest > one.early.took || !one.early.counts(now) {
			one.early = sample{longest, now}
		}
		if one.probe && slices.Max(not) >= time.Duration(float64(usual)*(1-2*one.step)) {
			one.probe, one.inRow, one.step = false, 0, probeStep
		}
		return
	}
	slices.Sort(done)
	took := done[len(done)/4] // some were looked at late, to look at them with others
	one.done = append(one.done, sample{took, now})
	if len(one.done) > lessons {
		one.done = slices.Delete(one.done, 0, 1)
	}
	if one.probe && took < usual { // earlier was in time, too: that is news
		one.probe, one.inRow = false, probeEvery/2
		one.step = min(2*one.step, probeMost)
		one.done = []sample{{took, now}}
		return
	}
	one.inRow++
	gap := float64(usual-one.early.took) / float64(max(usual, 1))
	known := one.early.counts(now) && one.early.took < usual && gap <= closeEnough
	one.probe = !known && one.inRow >= probeEvery
}
