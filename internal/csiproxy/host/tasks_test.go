package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func quiet() *tasks { return newTasks(slog.New(slog.DiscardHandler)) }

func blockOn(release chan struct{}) func(context.Context) (struct{}, error) {
	return func(context.Context) (struct{}, error) { <-release; return struct{}{}, nil }
}

func TestOperate_letsTheSecondOfAKeyWaitInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work, release := quiet(), make(chan struct{})
		go func() { _, _ = operate(t.Context(), work, []string{"disk 1"}, blockOn(release)) }()
		synctest.Wait()
		var order []int
		for i := range 10 {
			go func() {
				_, _ = operate(t.Context(), work, []string{"disk 1", "path a"}, func(context.Context) (struct{}, error) {
					order = append(order, i)
					return struct{}{}, nil
				})
			}()
			synctest.Wait()
		}
		close(release)
		synctest.Wait()
		if fmt.Sprint(order) != "[0 1 2 3 4 5 6 7 8 9]" {
			t.Error(order)
		}
	})
}

// The caller is answered when its context ends; the key stays locked until the call
// of Windows returns.
func TestOperate_answersACallerThatLeavesAndKeepsTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work, release := quiet(), make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := operate(ctx, work, []string{"disk 1"}, blockOn(release)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if _, err := operate(ctx, work, []string{"disk 1"}, blockOn(release)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the key was free: %v", err)
		}
		if _, err := operate(t.Context(), work, []string{"disk 2"}, func(context.Context) (struct{}, error) { return struct{}{}, nil }); err != nil {
			t.Errorf("another disk waits: %v", err)
		}
		close(release)
		synctest.Wait()
		if _, err := operate(t.Context(), work, []string{"disk 1"}, func(context.Context) (struct{}, error) { return struct{}{}, nil }); err != nil {
			t.Error(err)
		}
	})
}

func TestAsk_boundsTheThreadsThatOneDeadDiskKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work, release := quiet(), make(chan struct{})
		var inside atomic.Int32
		for range 64 {
			go func() {
				_, _ = ask(t.Context(), work, "disk 1", func(context.Context) (struct{}, error) {
					inside.Add(1)
					<-release
					return struct{}{}, nil
				})
			}()
		}
		synctest.Wait()
		if n := inside.Load(); n != questionsPerKey {
			t.Errorf("%d questions at once", n)
		}
		if _, err := ask(t.Context(), work, "disk 2", func(context.Context) (struct{}, error) { return struct{}{}, nil }); err != nil {
			t.Error(err)
		}
		close(release)
		synctest.Wait()
		if n := inside.Load(); n != 64 {
			t.Errorf("%d of 64 were asked", n)
		}
	})
}

func TestAskBounded_waitsOnceForADeadDiskAndThenNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work, release := quiet(), make(chan struct{})
		start := time.Now()
		if _, err := askBounded(t.Context(), work, "disk 1", blockOn(release)); !errors.Is(err, backend.ErrUnavailable) {
			t.Fatal(err)
		}
		if d := time.Since(start); d < questionTimeout || d > 2*questionTimeout {
			t.Errorf("waited %s", d)
		}
		start = time.Now()
		if _, err := askBounded(t.Context(), work, "disk 1", blockOn(release)); !errors.Is(err, backend.ErrUnavailable) || time.Since(start) > 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		close(release)
		synctest.Wait()
		if _, err := askBounded(t.Context(), work, "disk 1", blockOn(release)); err != nil {
			t.Error(err)
		}
	})
}

// The first query of a disk returns while a later one hangs: the disk is as stuck as
// the oldest of those that still run.
func TestAskBounded_doesNotWaitWhileALaterQueryHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work, first, later := quiet(), make(chan struct{}), make(chan struct{})
		go func() { _, _ = ask(t.Context(), work, "disk 1", blockOn(first)) }()
		synctest.Wait()
		go func() { _, _ = ask(t.Context(), work, "disk 1", blockOn(later)) }()
		synctest.Wait()
		close(first)
		time.Sleep(questionTimeout)
		start := time.Now()
		if _, err := askBounded(t.Context(), work, "disk 1", blockOn(later)); !errors.Is(err, backend.ErrUnavailable) ||
			time.Since(start) > 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		close(later)
		synctest.Wait()
		if _, err := askBounded(t.Context(), work, "disk 1", blockOn(later)); err != nil {
			t.Error(err)
		}
	})
}

func TestOperate_makesAPanicAnError(t *testing.T) {
	work := quiet()
	_, err := operate(t.Context(), work, []string{"k"}, func(context.Context) (int, error) { panic("no") })
	if err == nil || err.Error() != "internal fault: no" {
		t.Error(err)
	}
	if _, err := operate(t.Context(), work, []string{"k"}, func(context.Context) (int, error) { return 1, nil }); err != nil {
		t.Error("the key is still locked:", err)
	}
}

func TestPoll_endsWithSuccessTimeErrorOrContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		if ok, err := poll(t.Context(), time.Minute, func() (bool, error) { calls++; return calls == 5, nil }); !ok || err != nil {
			t.Error(ok, err)
		}
		start := time.Now()
		if ok, err := poll(t.Context(), time.Minute, func() (bool, error) { return false, nil }); ok ||
			err != nil || time.Since(start) != time.Minute {
			t.Error(ok, err, time.Since(start))
		}
		broken := errors.New("broken")
		if _, err := poll(t.Context(), time.Minute, func() (bool, error) { return false, broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := poll(ctx, time.Minute, func() (bool, error) { return false, nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// Callers that come during a run share one run that begins after their calls.
func TestFreshCall_sharesTheRunThatBeginsAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			shared     = freshCall{logger: slog.New(slog.DiscardHandler)}
			runs, done atomic.Int32
			release    = make(chan struct{})
		)
		call := func() {
			if err := shared.do(t.Context(), func() error { runs.Add(1); <-release; return nil }); err == nil {
				done.Add(1)
			}
		}
		go call()
		synctest.Wait()
		for range 63 {
			go call()
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		if runs.Load() != 2 || done.Load() != 64 {
			t.Errorf("%d runs for %d callers", runs.Load(), done.Load())
		}
	})
}

func TestFreshCall_endsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := freshCall{logger: slog.New(slog.DiscardHandler)}
		release := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := shared.do(ctx, func() error { <-release; return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		close(release)
	})
}
