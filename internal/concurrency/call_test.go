package concurrency

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

func TestCalls_callersOfAKeyShareOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls Calls[int]
		var all sync.WaitGroup
		release, count := make(chan struct{}), 0
		failure := errors.New("it failed")
		for range 10 {
			all.Go(func() {
				value, err := calls.Do(t.Context(), "a", func() (int, error) {
					count++
					<-release
					return 7, failure
				})
				if value != 7 || !errors.Is(err, failure) {
					t.Errorf("%d, %v", value, err)
				}
			})
		}
		synctest.Wait()
		if value, err := calls.Do(t.Context(), "b", func() (int, error) { return 8, nil }); value != 8 || err != nil {
			t.Errorf("another key: %d, %v", value, err)
		}
		close(release)
		all.Wait()
		if count != 1 {
			t.Errorf("%d calls", count)
		}
		if value, err := calls.Do(t.Context(), "a", func() (int, error) { return 9, nil }); value != 9 || err != nil {
			t.Errorf("after the call: %d, %v; want a new one", value, err)
		}
	})
}

func TestCalls_aCallOutlivesItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls Calls[int]
		release, count := make(chan struct{}), 0
		hang := func() (int, error) { count++; <-release; return 7, nil }
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { synctest.Wait(); cancel() }()
			if _, err := calls.Do(ctx, "a", hang); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that left: %v", err)
			}
		}
		close(release)
		synctest.Wait()
		if count != 1 || len(calls.running) != 0 {
			t.Errorf("%d calls, %d of them kept; want one that ended", count, len(calls.running))
		}
	})
}
