package concurrency

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The caller is answered when its context ends; the key stays locked until the
// operation itself is over.
func TestRun_keepsTheKeyOfAnOperationThatItsCallerLeft(t *testing.T) {
	r := NewRunner(nil)
	release, started := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	err := r.Run(ctx, "stage volume v", []string{"volume v"}, func(context.Context) error {
		close(started)
		<-release
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	nothing := func(context.Context) error { return nil }
	if err := r.Run(t.Context(), "again", []string{"volume v"}, nothing); !errors.Is(err, ErrBusy) {
		t.Errorf("%v; want busy", err)
	}
	if err := r.Run(t.Context(), "another", []string{"volume w", "target v"}, nothing); err != nil {
		t.Error(err)
	}
	short, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	if err := r.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting gave %v while an operation runs", err)
	}
	close(release)
	if err := r.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.Run(t.Context(), "again", []string{"volume v"}, nothing); err != nil {
		t.Error(err)
	}
}

func TestRun_makesAPanicAnError(t *testing.T) {
	r := NewRunner(nil)
	err := r.Run(t.Context(), "stage", nil, func(context.Context) error { panic("no") })
	if err == nil || !strings.Contains(err.Error(), "internal fault: no") {
		t.Error(err)
	}
	if err := r.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRunResult_returnsTheResult(t *testing.T) {
	errDead := errors.New("the device is dead")
	r := NewRunner(nil)
	size, err := RunResult(t.Context(), r, "expand", nil, func(context.Context) (int64, error) { return 7, nil })
	if size != 7 || err != nil {
		t.Errorf("%d, %v", size, err)
	}
	if _, err := RunResult(t.Context(), r, "expand", nil, func(context.Context) (int64, error) { return 7, errDead }); !errors.Is(err, errDead) {
		t.Error(err)
	}
}

// The context may end while ended runs: its own cancellation is among what a caller
// releases there. The operation has returned by then, so its result counts.
func TestDetach_returnsTheResultThoughTheContextEndsAfterTheOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := func() {
			cancel()
			time.Sleep(2 * gracePeriod) // the goroutine is throttled
		}
		size, err := Detach(ctx, slog.New(slog.DiscardHandler), ended, func(context.Context) (int, error) { return 7, nil })
		if size != 7 || err != nil {
			t.Errorf("an operation that returned 7 is answered with %d, %v", size, err)
		}
	})
}

// ended releases what the next operation needs: its caller calls right after Detach.
func TestDetach_returnsAfterEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := false
		ended := func() {
			time.Sleep(time.Second)
			released = true
		}
		_, err := Detach(t.Context(), slog.New(slog.DiscardHandler), ended, func(context.Context) (int, error) { return 7, nil })
		if !released || err != nil {
			t.Errorf("released: %v; %v", released, err)
		}
	})
}
