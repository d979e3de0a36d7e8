package concurrency

import (
	"context"
	"time"
)

// Sleep returns after d, or with the cause of the context's end if that comes
// first. A context that has ended already fails, even if d is not positive.
func Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
