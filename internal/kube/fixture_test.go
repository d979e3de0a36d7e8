package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const driverName = "d.example"

// testTimeout limits the waits of a test, and those of a process for its driver and
// its lease.
const testTimeout = time.Minute

// attaching is a driver with PUBLISH_UNPUBLISH_VOLUME and topology.
func attaching() *csidriver.Driver {
	driver := csidriver.New(driverName)
	driver.Plugin = append(driver.Plugin, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	driver.Controller = append(driver.Controller, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	driver.Topology = map[string]string{"zone": "a"}
	return driver
}

// options returns the options of a process with an API server in memory.
func options(c *apiserver.Cluster, change ...func(*Options)) Options {
	env := c.NewEnv()
	o := Options{
		Clients: env.Clients, CSI: env.CSI, Namespace: apiserver.Namespace,
		Limits: Limits{All: cluster.Limits{
			Workers: 4, Timeout: testTimeout, Retry: work.Retry{Start: time.Millisecond, Max: 10 * time.Millisecond},
		}}, Logger: env.Logger, Registerer: prometheus.NewRegistry(),
		// Long enough that a slow machine does not lose the lease.
		Lease: lease.Options{Identity: "me", Duration: 2 * testTimeout, RenewDeadline: testTimeout, RetryPeriod: 50 * time.Millisecond},
	}
	for _, f := range change {
		f(&o)
	}
	return o
}

// process is a process that runs the controllers.
type process struct {
	*Controllers
	t     *testing.T
	stop  context.CancelFunc
	ended chan struct{}
	err   error // once ended
}

func start(t *testing.T, o Options) *process {
	t.Helper()
	controllers, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{Controllers: controllers, t: t, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = controllers.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-p.ended })
	return p
}

// end waits until Run has returned by itself.
func (p *process) end() error {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.err
	case <-time.After(testTimeout):
		p.t.Fatal("the controllers still run")
		return nil
	}
}

// ready waits until the caches have synced.
func (p *process) ready() {
	p.t.Helper()
	eventually(p.t, func() error { _, err := p.Describe(); return err })
}

func eventually(t *testing.T, f func() error) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Since(start) > testTimeout {
			t.Fatal(err)
		}
	}
}

// socket serves one driver after the other at one address.
type socket struct {
	t       *testing.T
	address string
	client  *csiclient.Client

	mu           sync.Mutex
	disconnected func()
}

func newSocket(t *testing.T) *socket {
	t.Helper()
	s := &socket{t: t, address: filepath.Join(t.TempDir(), "csi.sock")}
	client, err := csiclient.Dial(s.address, csiclient.Options{Driver: driverName, Timeout: testTimeout, Disconnected: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.disconnected != nil {
			s.disconnected()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	s.client = client
	return s
}

func (s *socket) onDisconnect(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disconnected = f
}

func (s *socket) serve(driver *csidriver.Driver) (stop func()) {
	s.t.Helper()
	listener, err := net.Listen("unix", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	stop = sync.OnceFunc(driver.Serve(listener))
	s.t.Cleanup(stop)
	return stop
}

// journal is a log that tests search.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) Write(text []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, string(text))
	return len(text), nil
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// contains returns an error unless one line contains all the texts.
func (j *journal) contains(texts ...string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		missing := false
		for _, text := range texts {
			missing = missing || !strings.Contains(line, text)
		}
		if !missing {
			return nil
		}
	}
	return fmt.Errorf("no line has %q", texts)
}

// asked records the resources that are listed or watched.
func asked(c *apiserver.Cluster) func() map[string]bool {
	var mu sync.Mutex
	seen := map[string]bool{}
	c.React("*", "*", func(q apiserver.Request) error {
		if q.Verb == "list" || q.Verb == "watch" {
			mu.Lock()
			defer mu.Unlock()
			seen[q.Resource] = true
		}
		return nil
	})
	return func() map[string]bool {
		mu.Lock()
		defer mu.Unlock()
		copied := map[string]bool{}
		for resource := range seen {
			copied[resource] = true
		}
		return copied
	}
}

var errTest = errors.New("injected by the test")
