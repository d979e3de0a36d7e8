package status

import (
	"slices"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
)

// Waterfall has the steps of an object over time. Idle time between them is shortened,
// because a volume that was created in milliseconds may be mounted hours later.
type Waterfall struct {
	Bars   []Bar
	Breaks []Break
	// Took is the sum of the times in which at least one step ran.
	Took time.Duration
	// From and To are the first beginning and the last end.
	From, To time.Time
}

// Bar is one step. Offset and Width are percentages of the whole width.
type Bar struct {
	journal.StepEntry
	Begin, End    time.Time
	Offset, Width float64
}

// Running reports whether the step has not ended.
func (b Bar) Running() bool { return b.Status == journal.Started || b.Status == journal.Retrying }

// Failures counts the attempts that failed before the one that runs or ended.
func (b Bar) Failures() int {
	if b.Running() {
		return b.Attempts
	}
	return max(0, b.Attempts-1)
}

// Break is idle time that is drawn shorter than it was. Offset and Width are percentages.
type Break struct {
	Idle          time.Duration
	Offset, Width float64
}

// The width of idle time: all breaks together have a third of the width at most, and one
// of them a twelfth.
const (
	allBreaks = 100.0 / 3
	oneBreak  = 100.0 / 12
)

// interval is a time in which at least one step ran.
type interval struct{ begin, end time.Time }

// NewWaterfall arranges steps at a moment; a step that runs ends now.
func NewWaterfall(steps []journal.StepEntry, now time.Time) Waterfall {
	var w Waterfall
	for _, step := range steps {
		w.Bars = append(w.Bars, newBar(step, now))
	}
	if len(w.Bars) == 0 {
		return w
	}
	slices.SortStableFunc(w.Bars, func(a, b Bar) int { return a.Begin.Compare(b.Begin) })
	w.Took = total(merged(w.Bars, 0))
	// Idle time that is shorter than a break would be is drawn to scale.
	busy := merged(w.Bars, w.Took/12)
	w.From, w.To = busy[0].begin, busy[len(busy)-1].end
	axis := newAxis(busy)
	w.Breaks = axis.breaks
	for i := range w.Bars {
		bar := &w.Bars[i]
		bar.Offset = axis.at(bar.Begin)
		bar.Width = axis.at(bar.End) - bar.Offset
	}
	return w
}

// newBar returns the bar of a step. One that failed several times in the same way is
// one bar from the first beginning to the last end; of one that succeeded several times
// it is the last.
func newBar(step journal.StepEntry, now time.Time) Bar {
	bar := Bar{StepEntry: step, Begin: step.Started, End: step.Started.Add(step.Took)}
	if step.Status != journal.Done || step.Count < 2 {
		bar.Begin = begun(step)
	}
	if bar.Running() {
		bar.End = now
	}
	if bar.End.Before(bar.Begin) {
		bar.End = bar.Begin // the clock was set
	}
	return bar
}

// merged returns the times in which at least one step ran; idle time of at most the
// tolerance belongs to them. The bars are sorted.
func merged(bars []Bar, tolerance time.Duration) (busy []interval) {
	for _, bar := range bars {
		last := len(busy) - 1
		switch {
		case last < 0 || bar.Begin.Sub(busy[last].end) > tolerance:
			busy = append(busy, interval{bar.Begin, bar.End})
		case bar.End.After(busy[last].end):
			busy[last].end = bar.End
		}
	}
	return busy
}

func total(busy []interval) (sum time.Duration) {
	for _, one := range busy {
		sum += one.end.Sub(one.begin)
	}
	return sum
}

// axis maps time to percentages: each busy interval to its part of the width, and the
// idle time before it to a break.
type axis struct {
	busy   []interval
	offset []float64 // of each busy interval
	scale  float64   // percent for a nanosecond
	breaks []Break
}

func newAxis(busy []interval) axis {
	a := axis{busy: busy}
	var width float64
	if idle := len(busy) - 1; idle > 0 {
		width = min(oneBreak, allBreaks/float64(idle))
	}
	if took := total(busy); took > 0 {
		a.scale = (100 - width*float64(len(busy)-1)) / float64(took)
	}
	at := 0.0
	for i, one := range busy {
		if i > 0 {
			idle := one.begin.Sub(busy[i-1].end)
			a.breaks = append(a.breaks, Break{Idle: idle, Offset: at, Width: width})
			at += width
		}
		a.offset = append(a.offset, at)
		at += a.scale * float64(one.end.Sub(one.begin))
	}
	return a
}

// at returns the percentage of a time within a busy interval.
func (a axis) at(when time.Time) float64 {
	for i := len(a.busy) - 1; i >= 0; i-- {
		if !when.Before(a.busy[i].begin) {
			return min(100, a.offset[i]+a.scale*float64(when.Sub(a.busy[i].begin)))
		}
	}
	return 0
}
