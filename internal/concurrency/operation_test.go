package concurrency

import (
	"context"
	"errors"
	"strings"
	"testing"
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
