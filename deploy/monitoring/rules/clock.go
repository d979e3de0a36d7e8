package rules

import (
	"strconv"
	"time"

	"github.com/prometheus/common/model"
)

// Clock gives the rules their times. Tests make time pass faster than operators
// want it to: they evaluate the same rules with a factor below 1.
type Clock struct {
	// Factor multiplies every time of the rules; 0 means 1.
	Factor float64
	// Shortest is the shortest window of a rate, which needs two scrapes at least.
	Shortest time.Duration
}

func (c Clock) scale(d time.Duration) time.Duration {
	if c.Factor == 0 {
		return d
	}
	return time.Duration(float64(d) * c.Factor).Truncate(time.Millisecond)
}

// wait is the time for which an alert's condition must hold.
func (c Clock) wait(d time.Duration) model.Duration { return model.Duration(c.scale(d)) }

// window is d as the range of a query.
func (c Clock) window(d time.Duration) string {
	return model.Duration(max(c.scale(d), c.Shortest)).String()
}

// seconds is d as a number in an expression.
func (c Clock) seconds(d time.Duration) string {
	return strconv.FormatFloat(c.scale(d).Seconds(), 'f', -1, 64)
}
