package plugins

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/host/pluginwatch"
)

// entry is a socket of the desired world and how far its registration is. What
// follows cancel is guarded by the Manager's lock.
type entry struct {
	socket pluginwatch.Socket
	// direct entries have no registrar: the socket is the driver's own.
	direct bool
	// clients counts the open clients. ended is closed when the last has been closed and
	// no more can be opened; it is nil if no caller waits.
	clients sync.WaitGroup
	ended   chan struct{}

	cancel   context.CancelFunc
	since    time.Time // of the state
	name     string    // as the plugin says
	attempts int       // that failed in a row
	failure  error     // of the last attempt
	next     time.Time // when it is tried again
	done     bool      // registered
}

// attend registers the plugin behind a socket, with retries, and unregisters it when
// the socket is removed.
func (m *Manager) attend(ctx context.Context, e *entry) {
	firstTry := sync.OnceFunc(func() {
		if !e.direct {
			m.tried(-1, false)
		}
	})
	defer firstTry()
	for pause := m.timing.firstRetry; ; pause = min(2*pause, m.timing.longestRetry) {
		plugin, err := m.register(ctx, e)
		if err == nil {
			m.succeeded(e)
			firstTry()
			if err = plugin.keep(ctx); err == nil {
				return
			}
			pause = m.timing.firstRetry
		}
		if ctx.Err() != nil {
			return
		}
		m.failed(ctx, e, err, pause)
		firstTry()
		if !m.pause(ctx, e, pause) {
			return
		}
	}
}

// pause waits before the next attempt. A driver without a registrar is tried as
// soon as its socket appears.
func (m *Manager) pause(ctx context.Context, e *entry, pause time.Duration) bool {
	if e.direct {
		return m.network.Appears(ctx, e.socket.Path, pause)
	}
	return concurrency.Sleep(ctx, pause) == nil
}

func (m *Manager) succeeded(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.done, e.attempts, e.failure, e.since, e.next = true, 0, nil, time.Now(), time.Time{}
	m.note()
}

// failed records a failure, and logs it if it is a new one.
func (m *Manager) failed(ctx context.Context, e *entry, err error, pause time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.failure == nil || e.failure.Error() != err.Error() {
		level := slog.LevelWarn
		if e.direct && errors.Is(err, fs.ErrNotExist) {
			level = slog.LevelDebug // it has just been started
		}
		m.logger.Log(ctx, level, "the plugin is not registered", "socket", e.socket.Path, "error", err, "retry", pause)
	}
	if e.done || e.failure == nil {
		e.since = time.Now()
	}
	e.done, e.failure, e.next = false, err, time.Now().Add(pause)
	e.attempts++
	m.note()
}

// register makes one attempt of the registration. It notifies the plugin of a
// failure after GetInfo.
func (m *Manager) register(ctx context.Context, e *entry) (registered, error) {
	if e.direct {
		return m.registerDirect(ctx, e)
	}
	limited, cancel := context.WithTimeout(ctx, m.timing.dial)
	defer cancel()
	client, connection, err := m.network.Registrar(limited, e.socket)
	if err != nil {
		return nil, err
	}
	// The registration connection is used for this exchange only.
	defer func() { _ = connection.Close() }()
	info, err := m.getInfo(ctx, client)
	if err != nil {
		return nil, err
	}
	m.named(e, info.GetName())
	plugin, err := m.admit(ctx, e, info)
	if err != nil {
		return nil, errors.Join(err, m.notify(ctx, client, err))
	}
	if err := m.notify(ctx, client, nil); err != nil {
		plugin.remove()
		return nil, err
	}
	plugin.announced()
	return plugin, nil
}

func (m *Manager) named(e *entry, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.name = name
}

func (m *Manager) admit(ctx context.Context, e *entry, info *registration.PluginInfo) (registered, error) {
	handler, err := m.handlerOf(info)
	if err != nil {
		return nil, err
	}
	return handler.register(ctx, e, info)
}
