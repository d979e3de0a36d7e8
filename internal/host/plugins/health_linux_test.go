package plugins

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// A driver that hangs or is not ready keeps its connections. It stays registered, and the
// host says that it is not ready until it answers again.
func TestManager_probesRegisteredDrivers(t *testing.T) {
	for name, fault := range map[string]struct {
		answer func(context.Context) error
		says   string
	}{
		"hangs":     {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "not ready"},
		"not ready": {func(context.Context) error { return status.Error(codes.FailedPrecondition, "no license") }, "no license"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, func(m *Manager) { m.timing.probe, m.timing.identity = time.Millisecond, time.Second })
			var failing atomic.Bool
			driver := csidriver.New("d.example")
			driver.Before = func(ctx context.Context, rpc string, _ any) error {
				if rpc == "Probe" && failing.Load() {
					return fault.answer(ctx)
				}
				return nil
			}
			m.start("one", driver, nil)
			m.wait("d.example")
			failing.Store(true)
			m.until(func() bool {
				one := m.manager.List()[0]
				return one.Unready && strings.Contains(one.LastError, fault.says)
			})
			if one := m.manager.List()[0]; one.State != StateRegistered || !one.Serving {
				t.Errorf("it is %s, serving %t", one.State, one.Serving)
			}
			failing.Store(false)
			m.until(func() bool { one := m.manager.List()[0]; return !one.Unready && one.LastError == "" })
		})
	}
}
