package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// watchdog notifies systemd, three times in the unit's WatchdogSec=, that the host
// answers at its socket. After the first call that fails or hangs nothing follows, so
// that systemd ends and restarts the host. Without WatchdogSec= it returns at once.
type watchdog struct {
	interval time.Duration
	answers  func(context.Context) error
	notify   func() error
}

func newWatchdog(client *api.Client) (watchdog, error) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return watchdog{}, fmt.Errorf("read WATCHDOG_USEC and WATCHDOG_PID, which systemd sets: %w", err)
	}
	return watchdog{
		interval: within / 3,
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

// run returns when the context ends, or with the reason why the host does not answer.
func (w watchdog) run(ctx context.Context) error {
	if w.interval == 0 {
		return nil
	}
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		asked, cancel := context.WithTimeout(ctx, w.interval)
		err := w.answers(asked)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the host does not answer at its own socket, and systemd will restart it: %w", err)
		}
		if err := w.notify(); err != nil {
			return fmt.Errorf("notify systemd's watchdog: %w", err)
		}
	}
}
