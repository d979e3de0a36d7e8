package cli

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// watchdog notifies systemd, three times in the unit's WatchdogSec=, that the host
// answers at its socket. A call that fails or hangs is logged and followed by no
// notification: systemd ends and restarts the host if none comes within WatchdogSec=.
// Without WatchdogSec= it returns at once.
type watchdog struct {
	logger   *slog.Logger
	interval time.Duration
	answers  func(context.Context) error
	notify   func() error
}

func newWatchdog(client *api.Client, logger *slog.Logger) (watchdog, error) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return watchdog{}, fmt.Errorf("read WATCHDOG_USEC and WATCHDOG_PID, which systemd sets: %w", err)
	}
	return watchdog{
		logger: logger, interval: within / 3,
		answers: func(ctx context.Context) error {
			_, err := client.Version(ctx)
			return err
		},
		notify: func() error {
			_, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog)
			return err
		},
	}, nil
}

// run returns when the context ends.
func (w watchdog) run(ctx context.Context) {
	if w.interval == 0 {
		return
	}
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := w.once(ctx); err != nil && ctx.Err() == nil {
			w.logger.Error("the watchdog of systemd gets no notification", "error", err)
		}
	}
}

// once notifies systemd if the host answers.
func (w watchdog) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.interval)
	defer cancel()
	if err := w.answers(ctx); err != nil {
		return fmt.Errorf("the host does not answer at its own socket: %w", err)
	}
	return w.notify()
}
