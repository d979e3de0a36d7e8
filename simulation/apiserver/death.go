package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// Death is that of a process (Cluster.Mortal).
type Death struct {
	// Seen is closed when the process has died at its failpoint.
	Seen chan struct{}
	// Dead is set from then on, or by the test.
	Dead atomic.Bool

	once    sync.Once
	cluster *Cluster
}

// Await waits until the process has died at its failpoint.
func (d *Death) Await() {
	d.cluster.t.Helper()
	select {
	case <-d.Seen:
	case <-time.After(timeout):
		d.cluster.t.Fatalf("the failpoint was not passed; events: %s", strings.Join(d.cluster.Events(), "\n"))
	}
}

// Mortal lets the process of an Env die at a failpoint, unless that is "": from then on what
// it sends has no effect, also a request that arrives after the process has ended. Call it
// before the controllers are made. The log line of the failure shows the death.
func (c *Cluster) Mortal(env *cluster.Env, point string) *Death {
	c.t.Helper()
	death, process := &Death{Seen: make(chan struct{}), cluster: c}, c.Process(env)
	if point != "" {
		points, err := failpoint.Parse(point + "=error")
		if err != nil {
			c.t.Fatal(err)
		}
		env.Failpoints, env.Logger = points, slog.New(witness{death})
	}
	c.React("*", "*", func(q Request) error {
		if q.Process == process && death.Dead.Load() && q.Verb != "list" && q.Verb != "watch" {
			return errors.New("the process is dead")
		}
		return nil
	})
	return death
}

// witness is a slog.Handler that detects the log line of an injected failure.
type witness struct{ death *Death }

func (w witness) Enabled(context.Context, slog.Level) bool { return true }
func (w witness) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w witness) WithGroup(string) slog.Handler            { return w }
func (w witness) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, is := a.Value.Any().(error); is && errors.Is(err, failpoint.ErrInjected) {
			w.death.Dead.Store(true) // before the queue gives the key out again
			w.death.once.Do(func() { close(w.death.Seen) })
		}
		return true
	})
	return nil
}
