package lease

import (
	"context"
	"time"
)

// clock is the clock of one process. Times are compared with times of the same
// clock only.
type clock interface {
	Now() time.Time
	// AfterFunc calls f after d, unless stop comes first.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// systemClock is the process's monotonic clock. Jumps of the wall clock do not
// affect it.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

// pause waits for d. It returns false if ctx ended first.
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
