package progress

import (
	"fmt"
	"strings"
	"time"
)

// State is how far a piece of work is, with its speed.
type State struct {
	// Doing is what is done, such as "copying".
	Doing string `json:"doing"`
	// Done and Total are in Unit. Total is 0 if it is not known.
	Done  int64 `json:"done,omitempty"`
	Total int64 `json:"total,omitempty"`
	Unit  Unit  `json:"unit,omitempty"`
	// Rate is how many units are done in a second, 0 if that is not known yet.
	Rate int64 `json:"rate,omitempty"`
	// Left is the time that the rest takes at this rate, 0 if that is not known.
	Left time.Duration `json:"left,omitempty"`
}

// window is the time over which a rate is measured: long enough to be steady, short
// enough to follow a disk that becomes slow.
const window = 15 * time.Second

// Meter measures the rate of one piece of work from samples. The zero value is ready to
// use; it is not safe for concurrent use.
type Meter struct {
	doing   string
	samples []sample
}

type sample struct {
	at   time.Time
	done int64
}

// Observe adds what was seen at a time, and returns it with the rate. Work of another
// kind, or work that began again, starts a new measurement.
func (m *Meter) Observe(at time.Time, o Operation) State {
	if last := len(m.samples) - 1; m.doing != o.Doing || last >= 0 && m.samples[last].done > o.Done {
		m.doing, m.samples = o.Doing, m.samples[:0]
	}
	m.samples = append(m.samples, sample{at: at, done: o.Done})
	// The oldest sample that is kept is the last one from before the window.
	for len(m.samples) > 2 && !m.samples[1].at.After(at.Add(-window)) {
		m.samples = m.samples[1:]
	}
	state := State{Doing: o.Doing, Done: o.Done, Total: o.Total, Unit: o.Unit}
	if o.Total > 0 {
		state.Done = min(o.Done, o.Total)
	}
	first := m.samples[0]
	seconds := at.Sub(first.at).Seconds()
	if seconds <= 0 || o.Done <= first.done {
		return state
	}
	rate := float64(o.Done-first.done) / seconds
	state.Rate = int64(rate)
	if rest := state.Total - state.Done; rest > 0 && rate > 0 {
		state.Left = time.Duration(min(float64(rest)/rate, maximumLeft.Seconds()) * float64(time.Second))
	}
	return state
}

// maximumLeft is the longest time that is predicted. It also keeps Left from overflowing.
const maximumLeft = 999 * time.Hour

// Fraction is how much is done, from 0 to 1; false if that is not known.
func (s State) Fraction() (float64, bool) {
	if s.Total <= 0 {
		return 0, false
	}
	return min(max(float64(s.Done)/float64(s.Total), 0), 1), true
}

// String is such as "copying 3.2 of 10.0 GiB, 210 MiB/s, 33s left".
func (s State) String() string {
	parts := []string{strings.TrimSpace(s.Doing + " " + s.amount())}
	if s.Rate > 0 && s.Unit != Percent {
		parts = append(parts, Size(s.Rate)+"/s")
	}
	if left := s.Left.Round(precision(s.Left)); left > 0 {
		parts = append(parts, left.String()+" left")
	}
	return strings.Join(parts, ", ")
}

// precision of a time that is left: it is an estimate.
func precision(left time.Duration) time.Duration {
	if left >= time.Hour {
		return time.Minute
	}
	return time.Second
}

func (s State) amount() string {
	switch {
	case s.Unit == Percent:
		return fmt.Sprintf("%d %%", s.Done)
	case s.Total > 0:
		number, unit := scale(s.Total)
		return fmt.Sprintf(format(unit)+" of "+format(unit)+" %s", float64(s.Done)/number, float64(s.Total)/number, unit)
	case s.Done > 0:
		return Size(s.Done)
	}
	return ""
}

// Size is a number of bytes for people, such as 3.2 GiB.
func Size(bytes int64) string {
	number, unit := scale(bytes)
	return fmt.Sprintf(format(unit)+" %s", float64(bytes)/number, unit)
}

func format(unit string) string {
	if unit == "B" {
		return "%.0f"
	}
	return "%.1f"
}

// scale is the unit in which a number of bytes is short.
func scale(bytes int64) (number float64, unit string) {
	number, unit = 1, "B"
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if float64(bytes) < 1024*number {
			break
		}
		number, unit = number*1024, larger
	}
	return number, unit
}
