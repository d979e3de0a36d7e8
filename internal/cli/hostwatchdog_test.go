package cli

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWatchdog_notifiesWhileTheHostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		notified := 0
		w := watchdog{interval: time.Minute, answers: func(context.Context) error { return nil }, notify: func() error {
			if notified++; notified == 3 {
				cancel()
			}
			return nil
		}}
		began := time.Now()
		if err := w.run(ctx); err != nil || notified != 3 || time.Since(began) != 3*time.Minute {
			t.Errorf("%d notifications in %s, %v; want 3 in 3 minutes", notified, time.Since(began), err)
		}
	})
}

func TestWatchdog_isSilentWhenTheHostHangsOrFails(t *testing.T) {
	failed := errors.New("refused")
	for name, answers := range map[string]func(context.Context) error{
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"fails": func(context.Context) error { return failed },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watchdog{interval: time.Minute, answers: answers, notify: func() error {
					t.Error("systemd was notified")
					return nil
				}}
				if err := w.run(t.Context()); !errors.Is(err, failed) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("run returned %v", err)
				}
			})
		})
	}
}

func TestWatchdog_withoutOneReturns(t *testing.T) {
	if err := (watchdog{}).run(t.Context()); err != nil {
		t.Error(err)
	}
}
