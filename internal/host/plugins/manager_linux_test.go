package plugins

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/internal/host/pluginwatch"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is how long a test waits for a condition.
const timeout = time.Minute

// untried makes the pause before the next attempt longer than any test waits, so that a
// driver cannot be found by a retry.
func untried(m *Manager) { m.timing.firstRetry, m.timing.longestRetry = time.Hour, time.Hour }

// plugin is a driver with its registration.
type plugin struct {
	registration.UnimplementedRegistrationServer
	info registration.PluginInfo

	mu       sync.Mutex
	statuses []*registration.RegistrationStatus
	notified chan *registration.RegistrationStatus
	// refuse makes NotifyRegistrationStatus fail that many times.
	refuse int
	// hang is the call that never answers: GetInfo or Notify.
	hang string
}

func (p *plugin) GetInfo(ctx context.Context, _ *registration.InfoRequest) (*registration.PluginInfo, error) {
	if p.hang == "GetInfo" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &registration.PluginInfo{Type: p.info.GetType(), Name: p.info.GetName(), Endpoint: p.info.GetEndpoint(), SupportedVersions: p.info.GetSupportedVersions()}, nil
}

func (p *plugin) NotifyRegistrationStatus(ctx context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if p.hang == "Notify" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.statuses = append(p.statuses, status)
	if p.refuse > 0 {
		p.refuse--
		return nil, errors.New("not now")
	}
	select {
	case p.notified <- status:
	default:
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// machine is a registration directory with watcher and manager.
type machine struct {
	t         *testing.T
	directory string
	manager   *Manager
	log       *bytes.Buffer
}

func newMachine(t *testing.T, change ...func(*Manager)) *machine {
	t.Helper()
	directory, err := os.MkdirTemp("", "pm") //nolint:usetesting // a socket has no room in the path of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	m := &machine{t: t, directory: directory, manager: New(logger), log: &log}
	for _, change := range change {
		change(m.manager)
	}
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan pluginwatch.Change)
	var running sync.WaitGroup
	running.Go(func() { m.manager.Run(ctx, changes) })
	running.Go(func() {
		if err := pluginwatch.New(filepath.Join(directory, "registry"), changes, slog.New(slog.DiscardHandler)).Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = os.RemoveAll(directory)
	})
	if err := os.MkdirAll(filepath.Join(directory, "registry"), 0o750); err != nil {
		t.Fatal(err)
	}
	return m
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// start serves a driver and its registration, and returns what stops both.
func (m *machine) start(instance string, driver *csidriver.Driver, change func(*plugin)) (*plugin, func()) {
	m.t.Helper()
	endpoint := filepath.Join(m.directory, instance+".sock")
	stopDriver := driver.Serve(listen(m.t, endpoint))
	p := &plugin{notified: make(chan *registration.RegistrationStatus, 8)}
	p.info.Type, p.info.Name, p.info.Endpoint, p.info.SupportedVersions = registration.CSIPlugin, driver.Name, endpoint, []string{"1.0.0"}
	if change != nil {
		change(p)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, p)
	listener := listen(m.t, filepath.Join(m.directory, "registry", instance+"-reg.sock"))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	stop := sync.OnceFunc(func() {
		server.Stop()
		<-ended
		stopDriver()
	})
	m.t.Cleanup(stop)
	return p, stop
}

func (m *machine) instances(name string) int {
	m.manager.mu.Lock()
	defer m.manager.mu.Unlock()
	return len(m.manager.instances[name])
}

func (m *machine) wait(name string) *Driver {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), timeout)
	defer cancel()
	driver, err := m.manager.Wait(ctx, name)
	if err != nil {
		m.t.Fatalf("%v; log: %s", err, m.log)
	}
	return driver
}

// until waits for a condition on the manager.
func (m *machine) until(condition func() bool) {
	m.t.Helper()
	for deadline := time.After(timeout); ; {
		changed := m.manager.Changed()
		if condition() {
			return
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Millisecond): // a failed attempt does not change the serving instance
		case <-deadline:
			m.t.Fatalf("it did not happen; log: %s", m.log)
		}
	}
}

func TestManager_registersAndUnregisters(t *testing.T) {
	m := newMachine(t)
	driver := csidriver.New("d.example")
	driver.Topology = map[string]string{"zone": "a"}
	p, stop := m.start("one", driver, nil)
	registered := m.wait("d.example")
	if registered.Node.ID != "node-1" || registered.Node.Topology["zone"] != "a" {
		t.Errorf("the node is %+v", registered.Node)
	}
	if status := <-p.notified; !status.GetPluginRegistered() {
		t.Errorf("the plugin was notified with %v", status)
	}
	if err := registered.Client.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
	m.until(func() bool {
		_, err := m.manager.Driver("d.example")
		return errors.Is(err, ErrNotRegistered)
	})
}

func TestManager_refusesAndNotifiesThePlugin(t *testing.T) {
	cases := []struct {
		name   string
		driver func(*csidriver.Driver)
		plugin func(*plugin)
		want   string
	}{
		{"another type", nil, func(p *plugin) { p.info.Type = "DevicePlugin" }, `of type "DevicePlugin"; this host serves CSIPlugin only`},
		{"dynamic resources", nil, func(p *plugin) { p.info.Type = "DRAPlugin" }, "dynamic resource allocation is the kubelet's work"},
		{"a type that is none", nil, func(p *plugin) { p.info.Type = "csiplugin" }, `of type "csiplugin", which is none`},
		{"no version", nil, func(p *plugin) { p.info.SupportedVersions = nil }, "names no version"},
		{"old versions only", nil, func(p *plugin) { p.info.SupportedVersions = []string{"0.3.0", "2.0.0"} }, "this host needs 1.x"},
		{"a version that is none", nil, func(p *plugin) { p.info.SupportedVersions = []string{"latest"} }, `version "latest"`},
		{"a bad name", nil, func(p *plugin) { p.info.Name = "no_name" }, `the driver's name "no_name"`},
		{"a long name", nil, func(p *plugin) { p.info.Name = strings.Repeat("x", 64) }, "has 64 bytes, more than 63"},
		{"another driver's name", nil, func(p *plugin) { p.info.Name = "e.example" }, `registers as "e.example", but its driver says that it is "d.example"`},
		{"no node id", func(d *csidriver.Driver) { d.NodeID = "" }, nil, "answered without a node_id"},
		{"a dead endpoint", nil, func(p *plugin) { p.info.Endpoint = "/nowhere/csi.sock" }, "no such file"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			driver := csidriver.New("d.example")
			if c.driver != nil {
				c.driver(driver)
			}
			p, _ := m.start("one", driver, c.plugin)
			select {
			case status := <-p.notified:
				if status.GetPluginRegistered() || !strings.Contains(status.GetError(), c.want) {
					t.Errorf("the plugin was notified with %v, want %s", status, c.want)
				}
			case <-time.After(timeout):
				t.Fatal("the plugin was not notified")
			}
			if names := m.manager.Names(); len(names) != 0 {
				t.Errorf("registered are %v", names)
			}
		})
	}
}

func TestManager_aPluginThatCannotBeNotifiedIsRemovedAndRetried(t *testing.T) {
	m := newMachine(t)
	p, _ := m.start("one", csidriver.New("d.example"), func(p *plugin) { p.refuse = 1 })
	select {
	case status := <-p.notified:
		if !status.GetPluginRegistered() {
			t.Fatal(status)
		}
	case <-time.After(timeout):
		t.Fatal("it was not tried again")
	}
	m.wait("d.example")
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.statuses) != 2 {
		t.Errorf("the plugin was notified %d times", len(p.statuses))
	}
}

func TestManager_theSuccessorOutlivesItsPredecessor(t *testing.T) {
	m := newMachine(t)
	_, stopOld := m.start("old", csidriver.New("d.example"), nil)
	old := m.wait("d.example")
	m.start("new", csidriver.New("d.example"), nil)
	m.until(func() bool {
		driver, err := m.manager.Driver("d.example")
		return err == nil && driver != old
	})
	stopOld()
	m.until(func() bool {
		driver, err := m.manager.Driver("d.example")
		return err == nil && strings.HasSuffix(driver.Socket.Path, "new-reg.sock") && m.instances("d.example") == 1
	})
	if err := m.wait("d.example").Client.Probe(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestManager_fallsBackToThePredecessor(t *testing.T) {
	m := newMachine(t)
	m.start("old", csidriver.New("d.example"), nil)
	old := m.wait("d.example")
	_, stopNew := m.start("new", csidriver.New("d.example"), nil)
	m.until(func() bool { driver, _ := m.manager.Driver("d.example"); return driver != old })
	stopNew()
	m.until(func() bool { driver, _ := m.manager.Driver("d.example"); return driver == old })
}

func TestManager_refusesAnInstanceThatNamesTheNodeOtherwise(t *testing.T) {
	m := newMachine(t)
	m.start("old", csidriver.New("d.example"), nil)
	m.wait("d.example")
	stranger := csidriver.New("d.example")
	stranger.NodeID = "node-2"
	p, _ := m.start("new", stranger, nil)
	if status := <-p.notified; status.GetPluginRegistered() || !strings.Contains(status.GetError(), `says that this node is "node-2"`) {
		t.Errorf("the plugin was notified with %v", status)
	}
}

func TestWaitAttempts_doesNotWaitForStaleSockets(t *testing.T) {
	m := newMachine(t, untried)
	stale := filepath.Join(m.directory, "registry", "stale-reg.sock")
	listener := listen(t, stale)
	if unix, ok := listener.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(stale, old, old); err != nil {
		t.Fatal(err)
	}
	m.start("one", csidriver.New("d.example"), nil)
	m.wait("d.example")
	m.manager.WaitAttempts(t.Context())
	// The driver that creates the socket again does not wait for the back-off.
	if err := os.Remove(stale); err != nil {
		t.Fatal(err)
	}
	m.start("stale", csidriver.New("e.example"), nil)
	m.wait("e.example")
}

// TestRegister_doesNotReachTheNextSocketsPlugin tries a socket that was replaced since
// it was reported: the new plugin would be unregistered with the old socket.
func TestRegister_doesNotReachTheNextSocketsPlugin(t *testing.T) {
	m := newMachine(t)
	m.start("one", csidriver.New("d.example"), nil)
	path := m.wait("d.example").Socket.Path
	_, err := m.manager.register(t.Context(), &entry{socket: pluginwatch.Socket{Path: path}})
	if err == nil || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("got %v", err)
	}
	if n := m.instances("d.example"); n != 1 {
		t.Errorf("there are %d instances", n)
	}
}
