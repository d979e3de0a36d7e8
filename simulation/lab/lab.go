package lab

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Lab is one run of a world.
type Lab struct {
	source *source
	trace  trace
	start  time.Time
	// wake has a value after a step has begun to wait.
	wake chan struct{}
	calm bool

	mu     sync.Mutex
	order  uint64 // counts the steps that have waited
	parked []*parked
}

func newLab(s *source) *Lab {
	return &Lab{source: s, start: time.Now(), wake: make(chan struct{}, 1)}
}

// Choose returns a number from 0 to n-1. 0 must be the harmless choice. Only the goroutine
// that drives the world calls it, or code that runs while one step is taken.
func (l *Lab) Choose(n int) int {
	if n <= 1 {
		return 0
	}
	return l.source.choose(n)
}

// OneIn reports true once in n times on average.
func (l *Lab) OneIn(n int) bool { return n > 0 && l.Choose(n) == n-1 }

// Pick returns one of the elements; the first is the harmless one. There must be one.
func Pick[T any](l *Lab, from ...T) T { return from[l.Choose(len(from))] }

// Calm ends the faults: from now on every step is taken without one, and choices of the
// world that ask Troubled are harmless.
func (l *Lab) Calm() { l.calm = true }

// Troubled reports whether faults are injected.
func (l *Lab) Troubled() bool { return !l.calm }

// Elapsed is the virtual time since the start of the run.
func (l *Lab) Elapsed() time.Duration { return time.Since(l.start) }

// Note adds a line to the trace. It must be the same in each run of a seed: no addresses,
// and no numbers that the order of goroutines decides.
func (l *Lab) Note(format string, arguments ...any) {
	l.trace.add(l.Elapsed(), fmt.Sprintf(format, arguments...))
}

// Waiting returns the keys of the steps that wait, sorted, for descriptions of a failure.
func (l *Lab) Waiting() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []string
	for _, p := range l.parked {
		keys = append(keys, p.key)
	}
	slices.Sort(keys)
	return keys
}

// Steps is the number of steps and actions so far.
func (l *Lab) Steps() int { return l.trace.steps }
