package cli

import (
	"context"
	"errors"
	"log/slog"
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
		w.run(ctx)
		if notified != 3 || time.Since(began) != 3*time.Minute {
			t.Errorf("%d notifications in %s; want 3 in 3 minutes", notified, time.Since(began))
		}
	})
}

// One call that fails does not condemn the host: systemd decides by WatchdogSec=.
func TestWatchdog_notifiesAfterSuccessesOnly(t *testing.T) {
	for name, failure := range map[string]func(context.Context) error{
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"fails": func(context.Context) error { return errors.New("refused") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				calls, notified := 0, 0
				w := watchdog{interval: time.Minute, logger: slog.New(slog.DiscardHandler), answers: func(ctx context.Context) error {
					if calls++; calls <= 2 {
						return failure(ctx)
					}
					return nil
				}, notify: func() error {
					if notified++; calls <= 2 {
						t.Error("systemd was notified")
					}
					cancel()
					return nil
				}}
				time.AfterFunc(time.Hour, cancel)
				if w.run(ctx); notified != 1 {
					t.Errorf("%d notifications after the failures", notified)
				}
			})
		})
	}
}

func TestWatchdog_withoutOneReturns(t *testing.T) { (watchdog{}).run(t.Context()) }
