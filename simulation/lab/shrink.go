package lab

import (
	"slices"
	"testing"
)

// shrinkRuns limits the runs of Shrink.
const shrinkRuns = 400

// Shrink returns a run that fails with fewer choices and fewer of them that are not 0: it
// cuts the end off, removes parts, and sets parts to 0, each time half as large, while the run
// still fails. A run that does not fail is returned as it is.
func Shrink(t *testing.T, failed Result, world World) Result {
	t.Helper()
	if failed.Err == nil {
		return failed
	}
	best := failed
	shrink(failed.Choices, func(candidate Choices) bool {
		result := Replay(t, candidate, world)
		if result.Err == nil {
			return false
		}
		best, best.Choices, best.Seed = result, candidate, failed.Seed
		return true
	})
	return best
}

// shrink returns the smallest choices that it finds for which fails is true. It calls fails
// only for choices that are smaller than those for which that was true last.
func shrink(choices Choices, fails func(Choices) bool) Choices {
	s := &shrinking{fails: fails, best: choices, left: shrinkRuns}
	for before := -1; s.left > 0 && before != s.cost(s.best); {
		before = s.cost(s.best)
		s.cut()
		s.each(func(c Choices, from, to int) Choices { return slices.Delete(c, from, to) })
		s.each(func(c Choices, from, to int) Choices { clear(c[from:to]); return c })
	}
	return s.best
}

type shrinking struct {
	fails func(Choices) bool
	best  Choices
	left  int // runs
}

// cost is what becomes smaller.
func (s *shrinking) cost(c Choices) int {
	cost := len(c)
	for _, choice := range c {
		if choice != 0 {
			cost += 10
		}
	}
	return cost
}

// try runs a candidate, and keeps it if it fails and is smaller.
func (s *shrinking) try(candidate Choices) bool {
	if s.left <= 0 {
		return false
	}
	for len(candidate) > 0 && candidate[len(candidate)-1] == 0 {
		candidate = candidate[:len(candidate)-1] // a replay has 0 after the end
	}
	if s.cost(candidate) >= s.cost(s.best) {
		return false
	}
	s.left--
	if !s.fails(candidate) {
		return false
	}
	s.best = candidate
	return true
}

// cut removes the end of the choices.
func (s *shrinking) cut() {
	for part := len(s.best) / 2; part > 0 && s.left > 0; {
		if !s.try(slices.Clone(s.best[:max(len(s.best)-part, 0)])) {
			part /= 2
		}
		part = min(part, len(s.best))
	}
}

// each changes parts of the choices, from large to small.
func (s *shrinking) each(change func(c Choices, from, to int) Choices) {
	for size := max(len(s.best)/4, 1); size > 0 && s.left > 0; size /= 2 {
		for from := 0; from < len(s.best) && s.left > 0; {
			to := min(from+size, len(s.best))
			if harmless(s.best[from:to]) || !s.try(change(slices.Clone(s.best), from, to)) {
				from += size
			}
		}
	}
}

// harmless reports whether all choices are 0 already.
func harmless(c Choices) bool {
	return !slices.ContainsFunc(c, func(choice uint32) bool { return choice != 0 })
}
