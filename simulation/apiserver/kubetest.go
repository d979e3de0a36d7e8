// Package apiserver runs controllers against an API server in memory and a CSI
// driver in memory. The API server speaks HTTP to the real client, so that
// conflicts, 429 answers and broken watches are what they are in a cluster;
// what it lacks (most of validation, defaults, admission) is for the tests of
// test/kubernetes, which run on a real one.
package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshot "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/migration"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// timeout limits the wait of a test for a condition, and of a controller for its
// driver. A test that passes does not reach it, even if the machine pauses for
// some seconds.
const timeout = time.Minute

// processAgent begins the user agents of processes under test.
const processAgent = "process/"

const pollEvery = 5 * time.Millisecond

// Namespace is where the process under test lives, and Intents that of its intents.
const (
	Namespace = "holdfast-system"
	Intents   = "holdfast-intents"
)

// Cluster is an API server, a driver and the connections of a controller to them.
type Cluster struct {
	t      testing.TB
	server *Server
	http   *httptest.Server

	// Env is ready for a controller's constructor. Change it before.
	Env    *cluster.Env
	Driver *csidriver.Driver
	// Core and Snapshots are the test's own clients, of all of Kubernetes' API.
	// Reactions see their requests, too.
	Core      kubernetes.Interface
	Snapshots snapshot.Interface

	started   atomic.Int64 // processes
	processes sync.Map     // Request.Process by *cluster.Env

	events *recorder
	ctx    context.Context
	cancel context.CancelFunc
}

// New starts an API server with the objects.
func New(t testing.TB, driver *csidriver.Driver, objects ...runtime.Object) *Cluster {
	t.Helper()
	c := &Cluster{t: t, server: newServer(t.Context()), Driver: driver, events: &recorder{}}
	var err error
	if c.server.known, err = newScheme(); err != nil {
		t.Fatal(err)
	}
	c.http = httptest.NewServer(c.server)
	t.Cleanup(c.http.Close)
	t.Cleanup(c.server.breakWatches) // Close would wait for open watches
	c.ctx, c.cancel = context.WithCancel(context.Background())
	t.Cleanup(c.cancel)
	c.Add(objects...)
	c.Core, c.Snapshots = c.clients()
	c.Env = c.NewEnv()
	return c
}

func (c *Cluster) clients() (kubernetes.Interface, snapshot.Interface) {
	core, err := kubernetes.NewForConfig(c.config())
	if err != nil {
		c.t.Fatal(err)
	}
	snapshots, err := snapshot.NewForConfig(c.config())
	if err != nil {
		c.t.Fatal(err)
	}
	return core, snapshots
}

// narrowClients are those of the process under test.
func (c *Cluster) narrowClients(process string) cluster.Clients {
	config := c.config()
	config.UserAgent = processAgent + process
	core, err := api.NewKubernetes(config)
	if err != nil {
		c.t.Fatal(err)
	}
	snapshots, err := api.NewSnapshots(config)
	if err != nil {
		c.t.Fatal(err)
	}
	gateway, err := api.NewGateway(config)
	if err != nil {
		c.t.Fatal(err)
	}
	return cluster.Clients{Core: migration.For(c.Driver.Name).Clients(core), Snapshots: snapshots, Gateway: gateway, Leases: core, Events: core}
}

func (c *Cluster) config() *rest.Config {
	return &rest.Config{Host: c.http.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
}

// NewEnv returns the state of a starting process: empty caches, a new connection. A
// test of a restart gives its second controller a second Env.
func (c *Cluster) NewEnv() *cluster.Env {
	process := fmt.Sprint(c.started.Add(1))
	clients := c.narrowClients(process)
	logger := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		logger = slog.New(slog.NewTextHandler(&lines{c.t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	env := &cluster.Env{
		Driver: c.Driver.Name, Clients: clients, Set: cluster.NewSet(clients, c.Driver.Name, Namespace, logger),
		CSI:      c.connect(c.Driver.Intercept, logger),
		Recorder: c.events, Namespace: Namespace, Intents: Intents,
		Limits: cluster.Limits{Timeout: timeout, Workers: 10, Retry: work.Retry{Start: 5 * time.Millisecond, Max: 50 * time.Millisecond}},
		Logger: logger, Registerer: prometheus.NewRegistry(),
	}
	c.processes.Store(env, process)
	return env
}

// Process is the Request.Process of what an Env's clients send.
func (c *Cluster) Process(env *cluster.Env) string {
	process, _ := c.processes.Load(env)
	name, _ := process.(string)
	return name
}

// UseInstance has a process call the driver's instance on one node.
func (c *Cluster) UseInstance(env *cluster.Env, node string) {
	env.CSI, env.DriverNode = c.connect(c.Driver.Instance(node), env.Logger), node
}

func (c *Cluster) connect(intercept grpc.UnaryServerInterceptor, logger *slog.Logger) *client.Client {
	connection := client.NewInProcess(intercept)
	csi.RegisterIdentityServer(connection, c.Driver)
	csi.RegisterControllerServer(connection, c.Driver)
	csi.RegisterNodeServer(connection, c.Driver)
	csi.RegisterGroupControllerServer(connection, c.Driver)
	return client.New(connection, client.Options{Driver: c.Driver.Name, Logger: logger})
}

// lines writes a log to the test's output, and nothing after its end.
type lines struct{ t testing.TB }

func (l *lines) Write(text []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSuffix(string(text), "\n"))
	}
	return len(text), nil
}

// Start fills the caches of c.Env, for tests that call a controller's parts.
func (c *Cluster) Start() {
	c.t.Helper()
	c.Env.Set.Start(c.ctx)
	if err := c.Env.Set.Wait(c.ctx); err != nil {
		c.t.Fatal(err)
	}
}

// Runner is a controller.
type Runner interface {
	Run(ctx context.Context) error
}

// Run starts caches and controllers. The returned function stops them and
// waits, as the end of a process would; it is called at the test's end anyway.
func (c *Cluster) Run(env *cluster.Env, controllers ...Runner) (stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.ctx)
	env.Set.Start(ctx)
	if err := env.Set.Wait(ctx); err != nil {
		c.t.Fatal(err)
	}
	var running sync.WaitGroup
	for _, controller := range controllers {
		running.Go(func() {
			if err := controller.Run(ctx); err != nil {
				c.t.Errorf("%T: %v", controller, err)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	c.t.Cleanup(stop)
	return stop
}

// Add puts objects into the API server, status and all.
func (c *Cluster) Add(objects ...runtime.Object) {
	c.t.Helper()
	for _, o := range objects {
		if err := c.put(o); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Put is Add for an object that may exist: it is replaced regardless of its version.
func (c *Cluster) Put(objects ...runtime.Object) { c.Add(objects...) }

func (c *Cluster) put(o runtime.Object) error { return c.server.Put(o) }

// Delete asks the API server to delete an object; it stays while it has finalizers.
func (c *Cluster) Delete(o runtime.Object) {
	c.t.Helper()
	if err := c.server.Remove(o); err != nil {
		c.t.Fatal(err)
	}
}

// React lets f see each request of a verb ("*" for all) on a resource ("*" for
// all) before it is served; an error of f is the answer (use apierrors.New…). It
// is called from the server's goroutines, and by controllers that are being
// stopped, but not once the test has ended: it calls no t.Fatal and does not use
// the test's context.
func (c *Cluster) React(verb, resource string, f func(Request) error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.react = append(c.server.react, on(verb, resource, f))
}

// LoseAnswers is like React, but calls f after the effect of a request: an error of f
// replaces the answer, as when the connection breaks or a leader changes.
func (c *Cluster) LoseAnswers(verb, resource string, f func(Request) error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.lose = append(c.server.lose, on(verb, resource, f))
}

func on(verb, resource string, f func(Request) error) func(Request) error {
	return func(q Request) error {
		if (verb == "*" || verb == q.Verb) && (resource == "*" || resource == q.Resource) {
			return f(q)
		}
		return nil
	}
}

// Unserve removes a group, a GROUP/VERSION or a GROUP/VERSION/RESOURCE from the API, as
// in a cluster without its CRDs or of another version, or serves it again.
func (c *Cluster) Unserve(name string, absent bool) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.absent[name] = absent
}

// introduced are the built-in kinds that Kubernetes serves only from a minor version on.
func introduced() map[string]int {
	return map[string]int{"storage.k8s.io/v1/volumeattributesclasses": 34}
}

// SetVersion serves the built-in kinds that Kubernetes 1.MINOR serves by default.
func (c *Cluster) SetVersion(minor int) {
	for name, since := range introduced() {
		c.Unserve(name, minor < since)
	}
}

// BreakWatches ends every watch, as a restart of the API server does.
func (c *Cluster) BreakWatches() { c.server.breakWatches() }

// Writes are the requests so far that changed something or tried to.
func (c *Cluster) Writes() []Request {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return append([]Request(nil), c.server.writes...)
}

// Events are the events so far: "Warning Reason namespace/name: message".
func (c *Cluster) Events() []string { return c.events.all() }

// Happens waits for an event that contains all the parts.
func (c *Cluster) Happens(parts ...string) {
	c.t.Helper()
	c.Eventually(func() error {
		for _, event := range c.Events() {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(event, part) }) {
				return nil
			}
		}
		return fmt.Errorf("no event has %q", parts)
	})
}

// Eventually polls f until it has no error, for a minute.
func (c *Cluster) Eventually(f func() error) {
	c.t.Helper()
	deadline := time.Now().Add(timeout)
	c.poll(f, func() bool { return time.Now().After(deadline) })
}

// Bounds of Converges in polls: without any write, for eight seconds on an idle
// machine, which is longer than every pause of a controller; and in all.
const (
	quietPolls = 1500
	mostPolls  = 16 * quietPolls
)

// Converges is Eventually for a model whose faults have ended. It gives up when
// nothing has been written for so many polls that no controller can be in a pause, or
// when writes do not end. It counts polls and not seconds, since each poll takes as
// long as the machine and the API server are slow.
func (c *Cluster) Converges(f func() error) {
	c.t.Helper()
	left, quiet, version := mostPolls, quietPolls, uint64(0)
	c.poll(f, func() bool {
		if now := c.server.currentVersion(); now != version {
			quiet, version = quietPolls, now
		}
		left--
		quiet--
		return left < 0 || quiet < 0
	})
}

func (c *Cluster) poll(f func() error, ended func() bool) {
	c.t.Helper()
	for {
		err := f()
		if err == nil {
			return
		}
		if ended() {
			c.t.Fatalf("the condition did not become true: %v\nevents: %s", err, strings.Join(c.Events(), "\n        "))
		}
		time.Sleep(pollEvery)
	}
}

// Never fails the test if f returns an error within a while.
func (c *Cluster) Never(d time.Duration, f func() error) {
	c.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err := f(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Context ends with the test.
func (c *Cluster) Context() context.Context { return c.ctx }

// Secret is a secret for tests.
func Secret(namespace, name string, values map[string]string) *corev1.Secret {
	s := &corev1.Secret{Data: map[string][]byte{}}
	s.Namespace, s.Name = namespace, name
	for key, value := range values {
		s.Data[key] = []byte(value)
	}
	return s
}

func codec(known *runtime.Scheme, version schema.GroupVersion) runtime.Encoder {
	return encoder{known: known, version: version}
}
