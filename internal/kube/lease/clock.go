package lease

import (
	"context"
	"time"
)

// clock is time as one process sees it. Times are compared with times of the
// same clock only: nobody's clock is compared with another's.
type clock interface {
	Now() time.Time
	// AfterFunc calls f after d, unless stop comes first.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// systemClock is the process's monotonic clock, which does not care for jumps of
// the time of day.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

// pause is false when ctx ended first.
func pause(ctx context.Context, c clock, d time.Duration) bool {
	over := make(chan struct{})
	stop := c.AfterFunc(d, func() { close(over) })
	defer stop()
	select {
	case <-over:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
