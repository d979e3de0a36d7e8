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
	s := &shrinking{t: t, world: world, best: failed, left: shrinkRuns}
	for before := -1; s.left > 0 && before != s.cost(s.best.Choices); {
		before = s.cost(s.best.Choices)
		s.cut()
		s.each(func(c Choices, from, to int) Choices { return slices.Delete(c, from, to) })
		s.each(func(c Choices, from, to int) Choices { clear(c[from:to]); return c })
	}
	s.best.Seed = failed.Seed
	return s.best
}

type shrinking struct {
	t     *testing.T
	world World
	best  Result
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
	s.left--
	result := Replay(s.t, candidate, s.world)
	for len(candidate) > 0 && candidate[len(candidate)-1] == 0 {
		candidate = candidate[:len(candidate)-1] // a replay has 0 after the end
	}
	if result.Err == nil || s.cost(candidate) >= s.cost(s.best.Choices) {
		return false
	}
	s.best, s.best.Choices = result, candidate
	return true
}

// cut removes the end of the choices.
func (s *shrinking) cut() {
	for part := len(s.best.Choices) / 2; part > 0 && s.left > 0; {
		if !s.try(slices.Clone(s.best.Choices[:max(len(s.best.Choices)-part, 0)])) {
			part /= 2
		}
		part = min(part, len(s.best.Choices))
	}
}

// each changes parts of the choices, from large to small.
func (s *shrinking) each(change func(c Choices, from, to int) Choices) {
	for size := max(len(s.best.Choices)/4, 1); size > 0 && s.left > 0; size /= 2 {
		for from := 0; from < len(s.best.Choices) && s.left > 0; {
			to := min(from+size, len(s.best.Choices))
			if harmless(s.best.Choices[from:to]) || !s.try(change(slices.Clone(s.best.Choices), from, to)) {
				from += size
			}
		}
	}
}

// harmless reports whether all choices are 0 already.
func harmless(c Choices) bool {
	return !slices.ContainsFunc(c, func(choice uint32) bool { return choice != 0 })
}
