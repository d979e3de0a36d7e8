package concurrency

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep_returnsAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{-time.Second, 0, time.Minute} {
			began := time.Now()
			if err := Sleep(t.Context(), d); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took != max(d, 0) {
				t.Errorf("slept %s for %s", took, d)
			}
		}
	})
}

func TestSleep_endsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("shutdown")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		began := time.Now()
		if err := Sleep(ctx, time.Minute); !errors.Is(err, cause) || time.Since(began) != time.Second {
			t.Errorf("%v after %s; want the cause after 1s", err, time.Since(began))
		}
		if err := Sleep(ctx, 0); !errors.Is(err, cause) {
			t.Errorf("an ended context: %v", err)
		}
	})
}
