package plugins

import (
	"context"
	"fmt"
	"time"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
)

// watchReadiness calls Probe of the driver from time to time, until the context ends: a
// process that hangs keeps its connections open, so that only a call detects it.
func (i *instance) watchReadiness(ctx context.Context) {
	ticker := time.NewTicker(i.manager.timing.probe)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		driver, away := i.serving()
		if away {
			continue
		}
		err := i.manager.probe(ctx, driver)
		if ctx.Err() != nil {
			return
		}
		i.probed(ctx, driver, err)
	}
}

// serving returns the driver as last dialed, and whether it does not answer.
func (i *instance) serving() (driver *Driver, away bool) {
	i.manager.mu.Lock()
	defer i.manager.mu.Unlock()
	return i.driver, i.away
}

// probe asks a driver whether it is ready. One without Probe is taken for ready, as by
// the registration.
func (m *Manager) probe(ctx context.Context, driver *Driver) error {
	ctx, cancel := context.WithTimeout(ctx, m.timing.identity)
	defer cancel()
	if err := driver.Client.Probe(ctx); err != nil && !csiclient.Lacks(err) {
		return fmt.Errorf("the driver is not ready: %w", err)
	}
	return nil
}

// probed records an answer, and logs it if it is another one than before. That of a
// driver that was replaced meanwhile is dropped.
func (i *instance) probed(ctx context.Context, driver *Driver, err error) {
	m := i.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if i.driver != driver || (err == nil) == (i.unready == nil) {
		return
	}
	i.unready = err
	if err != nil {
		m.logger.WarnContext(ctx, "the driver is not ready", "driver", i.name, "socket", i.endpoint, "error", err)
	} else {
		m.logger.InfoContext(ctx, "the driver is ready again", "driver", i.name, "socket", i.endpoint)
	}
	m.note()
}
