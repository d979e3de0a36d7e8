package plugins

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// process is an instance of a driver with its registrar, as a process has both.
type process struct {
	m                *machine
	driver           *csidriver.Driver
	endpoint, socket string
	end              func()
}

// spawn starts an instance under a name that is its own.
func (m *machine) spawn(instance string, driver *csidriver.Driver) *process {
	m.t.Helper()
	p := &process{
		m: m, driver: driver, endpoint: filepath.Join(m.directory, instance+".sock"),
		socket: filepath.Join(m.directory, "registry", instance+"-reg.sock"),
	}
	stopDriver := p.serve()
	register := &plugin{notified: make(chan *registration.RegistrationStatus, 64)}
	register.info.Type, register.info.Name, register.info.Endpoint = registration.CSIPlugin, driver.Name, p.endpoint
	register.info.SupportedVersions = []string{"1.0.0"}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, register)
	listener := m.bind(p.socket)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(listener) }()
	p.end = sync.OnceFunc(func() {
		server.Stop()
		<-ended
		stopDriver()
	})
	m.t.Cleanup(func() { p.end() })
	return p
}

// bind listens, and leaves the file when it ends, as a crash does.
func (m *machine) bind(path string) net.Listener {
	m.t.Helper()
	listener := listen(m.t, path)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	return listener
}

func (p *process) serve() (stop func()) { return p.driver.Serve(p.m.bind(p.endpoint)) }

// crash ends the process and leaves its files.
func (p *process) crash() { p.end() }

// stop ends the process, which removes its files first.
func (p *process) stop() {
	p.m.t.Helper()
	for _, path := range []string{p.socket, p.endpoint} {
		if err := os.Remove(path); err != nil {
			p.m.t.Fatal(err)
		}
	}
	p.end()
}

// revive serves the driver again, but not the registrar, whose file is there.
func (p *process) revive() {
	p.m.t.Helper()
	if err := os.Remove(p.endpoint); err != nil {
		p.m.t.Fatal(err)
	}
	p.end = sync.OnceFunc(p.serve())
}

// serving waits until calls go to an instance; nil is none.
func (m *machine) serving(want *process) {
	m.t.Helper()
	m.eventually(func() bool {
		driver, err := m.manager.Driver("d.example")
		if want == nil {
			return errors.Is(err, ErrNotRegistered)
		}
		return err == nil && driver.Socket.Path == want.socket && m.state(want) == StateRegistered
	})
}

func TestManager_aDriverThatCrashedAndLeftItsSocketIsAwayAndThenBack(t *testing.T) {
	m := newMachine(t, untried)
	p := m.spawn("one", csidriver.New("d.example"))
	m.serving(p)
	p.crash()
	m.serving(nil)
	_, err := m.manager.Driver("d.example")
	if !strings.Contains(err.Error(), "it does not answer at "+p.endpoint) {
		t.Error(err)
	}
	if list := m.manager.List(); len(list) != 1 || list[0].State != StateAway || list[0].Serving || list[0].LastError == "" {
		t.Errorf("%+v", list)
	}
	if nodes := m.manager.Nodes(); nodes["d.example"].ID != "node-1" {
		t.Errorf("the node is %v", nodes)
	}
	p.revive()
	m.serving(p)
	if err := m.wait("d.example").Client.Probe(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestManager_anInstanceThatIsAwayIsReplacedByTheOneBefore(t *testing.T) {
	m := newMachine(t)
	old := m.spawn("old", csidriver.New("d.example"))
	m.serving(old)
	young := m.spawn("young", csidriver.New("d.example"))
	m.serving(young)
	young.crash()
	m.serving(old)
	young.revive()
	m.serving(young)
}

func TestManager_anotherDriverBehindTheSocketIsRefused(t *testing.T) {
	m := newMachine(t)
	p := m.spawn("one", csidriver.New("d.example"))
	m.serving(p)
	p.crash()
	m.serving(nil)
	for _, other := range []*csidriver.Driver{csidriver.New("e.example"), csidriver.New("d.example")} {
		other.NodeID = "node-2"
		p.driver = other
		p.revive()
		m.until(func() bool {
			list := m.manager.List()
			return list[0].State == StateFailed || other.Name == "d.example" && list[0].Node.ID == "node-2"
		})
		if other.Name == "d.example" {
			break
		}
		if failure := m.manager.List()[0].LastError; !strings.Contains(failure, `its driver says that it is "e.example"`) {
			t.Error(failure)
		}
		p.crash()
	}
}

func TestManager_aDriverThatStillStartsDoesNotServe(t *testing.T) {
	m := newMachine(t, func(m *Manager) { m.timing.firstRetry = 5 * time.Millisecond })
	old := m.spawn("old", csidriver.New("d.example"))
	m.serving(old)
	ready := make(chan struct{})
	driver := csidriver.New("d.example")
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		select {
		case <-ready:
			return nil
		default:
		}
		if rpc == "Probe" {
			return csidriver.Fail(codes.FailedPrecondition, "the pool is not there yet")
		}
		return nil
	}
	young := m.spawn("young", driver)
	deadline := time.Now().Add(timeout)
	for driver.Count("Probe") < 3 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	m.serving(old)
	failed := m.manager.List()[1]
	if failed.State != StateFailed || !strings.Contains(failed.LastError, "the pool is not there yet") || failed.Name != "d.example" {
		t.Errorf("%+v", failed)
	}
	close(ready)
	m.serving(young)
}

func TestManager_aNewerInstanceThatCanDoLessServesAndIsWarnedOf(t *testing.T) {
	m := newMachine(t)
	old := m.spawn("old", csidriver.New("d.example"))
	m.serving(old)
	driver := csidriver.New("d.example")
	driver.Node = nil
	young := m.spawn("young", driver)
	m.serving(young)
	want := "it lacks capabilities of the instance at " + old.endpoint + ": node/EXPAND_VOLUME, node/STAGE_UNSTAGE_VOLUME"
	if list := m.manager.List(); len(list) != 2 || !list[0].Serving || strings.Join(list[0].Warnings, ";") != want {
		t.Errorf("%+v", list)
	}
}

func TestManager_aCallThatRunsEndsOverTheOldConnection(t *testing.T) {
	m := newMachine(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	driver := csidriver.New("d.example")
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "NodePublishVolume" {
			close(begun)
			<-finish
		}
		return nil
	}
	old := m.spawn("old", driver)
	m.serving(old)
	client := m.wait("d.example").Client
	answer := make(chan error, 1)
	go func() { answer <- client.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{VolumeId: "v"}) }()
	<-begun
	young := m.spawn("young", csidriver.New("d.example"))
	m.serving(young)
	if err := os.Remove(old.socket); err != nil {
		t.Fatal(err)
	}
	m.until(func() bool { return m.instances("d.example") == 1 })
	close(finish)
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// A caller that asked for the driver just before the old instance went.
func TestManager_aCallThatComesTooLateGoesToTheSuccessor(t *testing.T) {
	m := newMachine(t)
	old := m.spawn("old", csidriver.New("d.example"))
	m.serving(old)
	client := m.wait("d.example").Client
	young := m.spawn("young", csidriver.New("d.example"))
	m.serving(young)
	old.stop() // calls sent while it ends are lost; later ones are not
	m.eventually(func() bool { return client.Probe(t.Context()) == nil })
	for range 3 {
		if err := client.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{VolumeId: "v"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := young.driver.Count("NodePublishVolume"); n != 3 {
		t.Errorf("the successor was called %d times", n)
	}
}

func TestManager_pluginsThatHangDelayNoOther(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	quick := func(m *Manager) {
		m.timing.info, m.timing.notify, m.timing.identity = time.Second/2, time.Second/2, time.Second/2
	}
	silent := func(rpc string) *csidriver.Driver {
		driver := csidriver.New("h.example")
		driver.Before = func(ctx context.Context, name string, _ any) error {
			if name == rpc {
				return hang(ctx)
			}
			return nil
		}
		return driver
	}
	cases := map[string]struct {
		driver *csidriver.Driver
		change func(*plugin)
		want   string
	}{
		"GetInfo":                  {silent(""), func(p *plugin) { p.hang = "GetInfo" }, "ask the plugin who it is (GetInfo)"},
		"NotifyRegistrationStatus": {silent(""), func(p *plugin) { p.hang = "Notify" }, "notify the plugin of its registration"},
		"GetPluginInfo":            {silent("GetPluginInfo"), nil, "GetPluginInfo"},
		"Probe":                    {silent("Probe"), nil, "Probe"},
		"NodeGetCapabilities":      {silent("NodeGetCapabilities"), nil, "NodeGetCapabilities"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, quick)
			m.start("hangs", c.driver, c.change)
			m.start("works", csidriver.New("d.example"), nil)
			m.wait("d.example")
			hanging := &process{socket: filepath.Join(m.directory, "registry", "hangs-reg.sock")}
			m.eventually(func() bool { // on a slow machine another question runs out first, at first
				failed := func(s DriverStatus) bool {
					return s.Socket == hanging.socket && s.State == StateFailed && strings.Contains(s.LastError, c.want)
				}
				return slices.ContainsFunc(m.manager.List(), failed)
			})
		})
	}
}

func TestManager_aFailedRegistrationIsNoChange(t *testing.T) {
	m := newMachine(t, func(m *Manager) { m.timing.firstRetry = time.Millisecond })
	m.manager.WaitAttempts(t.Context())
	changed := m.manager.Changed()
	driver := csidriver.New("d.example")
	driver.NodeID = ""
	m.spawn("one", driver)
	for deadline := time.Now().Add(timeout); driver.Count("NodeGetInfo") < 4; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it was not tried again")
		}
	}
	select {
	case <-changed:
		t.Error("a plugin that does not register has everything tried again")
	default:
	}
}

func TestManager_thePluginThatCrashesWhileItRegistersIsTriedAgain(t *testing.T) {
	m := newMachine(t)
	driver := csidriver.New("d.example")
	var p *process
	started := make(chan struct{})
	driver.Before = func(ctx context.Context, rpc string, _ any) error {
		<-started
		if rpc == "NodeGetInfo" && driver.Count("NodeGetInfo") == 1 {
			go p.crash()
			<-ctx.Done()
		}
		return nil
	}
	p = m.spawn("one", driver)
	close(started)
	m.eventually(func() bool { return m.state(p) == StateFailed })
	for _, path := range []string{p.socket, p.endpoint} { // the next process creates both again
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	m.serving(m.spawn("one", csidriver.New("d.example")))
}

func TestManager_absurdAnswersAreRefused(t *testing.T) {
	for want, change := range map[string]func(*csi.NodeGetInfoResponse){
		"the node_id has 257 bytes": func(a *csi.NodeGetInfoResponse) { a.NodeId = strings.Repeat("x", 257) },
		`the topology key "a b"`: func(a *csi.NodeGetInfoResponse) {
			a.AccessibleTopology = &csi.Topology{Segments: map[string]string{"a b": "c"}}
		},
		`the topology value a="b c"`: func(a *csi.NodeGetInfoResponse) {
			a.AccessibleTopology = &csi.Topology{Segments: map[string]string{"a": "b c"}}
		},
		"answered without a node_id": func(a *csi.NodeGetInfoResponse) { a.NodeId = "" },
	} {
		answer := &csi.NodeGetInfoResponse{NodeId: "node-1"}
		change(answer)
		if err := validateNode(answer); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

func TestNodes_aDriverStaysForAWhileAfterItsLastInstance(t *testing.T) {
	const withdraw = 300 * time.Millisecond
	m := newMachine(t, func(m *Manager) { m.timing.withdraw = withdraw })
	p := m.spawn("one", csidriver.New("d.example"))
	m.serving(p)
	start := time.Now()
	p.stop()
	m.serving(nil)
	if _, published := m.manager.Nodes()["d.example"]; !published && time.Since(start) < withdraw {
		t.Error("it is withdrawn at once")
	}
	m.until(func() bool { return len(m.manager.Nodes()) == 0 })
	p = m.spawn("one", csidriver.New("d.example"))
	m.serving(p)
	p.stop()
	m.serving(nil)
	m.serving(m.spawn("one", csidriver.New("d.example")))
	time.Sleep(withdraw + 50*time.Millisecond)
	if len(m.manager.Nodes()) != 1 {
		t.Error("the departure of the one before withdrew the one that serves")
	}
}

func TestOffer_registersADriverThatHasNoRegistrar(t *testing.T) {
	m := newMachine(t, untried)
	endpoint := filepath.Join(m.directory, "d.sock")
	offer := m.manager.Offer(endpoint)
	m.eventually(func() bool { _, _, failure := offer.State(); return failure != nil })
	stop := csidriver.New("d.example").Serve(listen(t, endpoint))
	defer stop()
	m.wait("d.example")
	m.eventually(func() bool { return m.manager.List()[0].State == StateRegistered })
	if registered, _, failure := offer.State(); !registered || failure != nil {
		t.Errorf("registered %t, %v", registered, failure)
	}
	ended := offer.Withdraw()
	m.until(func() bool { return m.instances("d.example") == 0 })
	select {
	case <-ended:
		t.Error("it is over before the late calls")
	default:
	}
}

func TestOffer_isOverWhenNoCallRuns(t *testing.T) {
	m := newMachine(t, func(m *Manager) { m.timing.late = time.Millisecond })
	endpoint := filepath.Join(m.directory, "d.sock")
	begun, finish := make(chan struct{}), make(chan struct{})
	driver := csidriver.New("d.example")
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "NodePublishVolume" {
			close(begun)
			<-finish
		}
		return nil
	}
	stop := driver.Serve(listen(t, endpoint))
	defer stop()
	offer := m.manager.Offer(endpoint)
	client := m.wait("d.example").Client
	answer := make(chan error, 1)
	go func() { answer <- client.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{VolumeId: "v"}) }()
	<-begun
	ended := offer.Withdraw()
	select {
	case <-ended:
		t.Error("it is over while a call runs")
	case <-time.After(50 * time.Millisecond):
	}
	close(finish)
	if err := <-answer; err != nil {
		t.Error(err)
	}
	<-ended
	<-m.manager.Offer(endpoint + "x").Withdraw() // never was there
}

// The number of volumes that a node takes may change.
func TestRefresh_takesANewLimitAndNoNewName(t *testing.T) {
	m := newMachine(t)
	driver := csidriver.New("d.example")
	p := m.spawn("one", driver)
	m.serving(p)
	before := m.wait("d.example")
	changed := m.manager.Changed()
	if err := m.manager.Refresh(t.Context(), "d.example"); err != nil || m.wait("d.example") != before {
		t.Errorf("nothing changed: %v", err)
	}
	driver.Topology = map[string]string{"zone": "b"}
	if err := m.manager.Refresh(t.Context(), "d.example"); err != nil {
		t.Fatal(err)
	}
	<-changed
	if got := m.wait("d.example").Node.Topology["zone"]; got != "b" {
		t.Errorf("the zone is %q", got)
	}
	driver.NodeID = "other"
	if err := m.manager.Refresh(t.Context(), "d.example"); err == nil || m.wait("d.example").Node.ID != "node-1" {
		t.Errorf("another name was taken: %v", err)
	}
	if err := m.manager.Refresh(t.Context(), "e.example"); !errors.Is(err, ErrNotRegistered) {
		t.Error(err)
	}
}
