package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/csi/message/messagetest"
	"github.com/holdfast-csi/holdfast/internal/grpcserver/peertest"
	"github.com/holdfast-csi/holdfast/internal/unixsocket"
)

func TestMain(m *testing.M) {
	peertest.Main()
	goleak.VerifyTestMain(m)
}

// instance is a driver that serves, and its clients.
type instance struct {
	csi.IdentityClient
	csi.ControllerClient
	csi.GroupControllerClient
	csi.NodeClient
	engine   *engine
	registry *prometheus.Registry
	log      *record
	socket   string
	server   *Server
	end      func() error // as SIGTERM does
}

type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func start(t *testing.T, mode Mode, controller backend.Controller) *instance {
	t.Helper()
	i := &instance{engine: &engine{}, registry: prometheus.NewRegistry(), log: &record{}, socket: filepath.Join(t.TempDir(), "csi.sock")}
	i.run(t, options(mode, controller, i))
	return i
}

// run serves until the end of the test, or until end is called.
func (i *instance) run(t *testing.T, o Options) {
	t.Helper()
	server, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	i.server = server
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	i.end = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := i.end(); err != nil {
			t.Errorf("the driver ended with %v", err)
		}
	})
	select {
	case <-server.Ready():
	case err := <-done:
		t.Fatalf("the driver does not start: %v", err)
	}
	i.connect(t)
}

func options(mode Mode, controller backend.Controller, i *instance) Options {
	guarded := guard.New(controller)
	return Options{
		Mode: mode, Version: "v1.2.3", Endpoint: "unix://" + i.socket,
		Traits: guarded.Traits(), Features: guarded.Features(), Guard: guarded, Engine: i.engine, NodeID: "n1",
		Logger: slog.New(slog.NewJSONHandler(i.log, nil)), Registerer: i.registry,
	}
}

func (i *instance) connect(t *testing.T) {
	t.Helper()
	connection, err := grpc.NewClient("unix:"+i.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	i.IdentityClient, i.ControllerClient = csi.NewIdentityClient(connection), csi.NewControllerClient(connection)
	i.GroupControllerClient, i.NodeClient = csi.NewGroupControllerClient(connection), csi.NewNodeClient(connection)
}

// wantCode checks the code, that the message is not empty, and that the details, which
// CSI forbids, are.
func wantCode(t *testing.T, err error, code codes.Code) {
	t.Helper()
	got := status.Convert(err)
	if got.Code() != code {
		t.Errorf("the call ends with %v (%s), want %v", got.Code(), got.Message(), code)
	}
	if code != codes.OK && got.Message() == "" {
		t.Error("the status has no message")
	}
	if len(got.Details()) > 0 {
		t.Errorf("the status has details: %v", got.Details())
	}
}

// A mode answers its services and no others.
func TestRun_answersTheServicesOfItsMode(t *testing.T) {
	cases := []struct {
		mode                    Mode
		controller, group, node codes.Code
	}{
		{All, codes.OK, codes.OK, codes.OK},
		{Controller, codes.OK, codes.OK, codes.Unimplemented},
		{Node, codes.Unimplemented, codes.Unimplemented, codes.OK},
	}
	var first *csi.GetPluginCapabilitiesResponse
	for _, c := range cases {
		t.Run(string(c.mode), func(t *testing.T) {
			i := start(t, c.mode, memory{newPlain()})
			_, err := i.ControllerGetCapabilities(t.Context(), &csi.ControllerGetCapabilitiesRequest{})
			wantCode(t, err, c.controller)
			_, err = i.GroupControllerGetCapabilities(t.Context(), &csi.GroupControllerGetCapabilitiesRequest{})
			wantCode(t, err, c.group)
			_, err = i.NodeGetCapabilities(t.Context(), &csi.NodeGetCapabilitiesRequest{})
			wantCode(t, err, c.node)
			capabilities, err := i.GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{})
			wantCode(t, err, codes.OK)
			if first == nil {
				first = capabilities
			}
			if capabilities.String() != first.String() {
				t.Errorf("mode %s has the plugin capabilities %v, mode all %v", c.mode, capabilities, first)
			}
		})
	}
}

// Calls in flight have their time when the process is asked to end.
func TestRun_letsCallsInFlightFinish(t *testing.T) {
	i := start(t, All, memory{newPlain()})
	answer := i.stageAndWait()
	ended := make(chan error, 1)
	go func() { ended <- i.end() }()
	select {
	case err := <-ended:
		t.Fatalf("the driver ended (%v) before the call", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(i.engine.leave)
	if err := <-answer; err != nil {
		t.Errorf("the call in flight ended with %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the driver ended with %v", err)
	}
	if _, err := os.Lstat(i.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// But no more than that.
func TestRun_cancelsCallsThatDoNotEnd(t *testing.T) {
	i := start(t, All, memory{newPlain()})
	i.server.drainTime = 50 * time.Millisecond
	answer := i.stageAndWait()
	if err := i.end(); err != nil {
		t.Errorf("the driver ended with %v", err)
	}
	if err := <-answer; err == nil {
		t.Error("the cancelled call succeeded")
	}
	if !strings.Contains(i.log.String(), `"rpc":"NodeStageVolume","volume":"vol-1","node":"n1"`) ||
		!strings.Contains(i.log.String(), `"code":"Canceled"`) {
		t.Errorf("the log does not say that the call was cancelled: %s", i.log)
	}
}

func TestRun_doesNotWaitForAStuckCall(t *testing.T) {
	i := start(t, All, memory{newPlain()})
	i.server.drainTime, i.server.cancelTime = 10*time.Millisecond, 10*time.Millisecond
	i.engine.stuck = true
	answer := i.stageAndWait()
	if err := i.end(); err != nil {
		t.Errorf("the driver ended with %v", err)
	}
	if !strings.Contains(i.log.String(), "a call does not end even now") {
		t.Errorf("the log does not name the stuck call: %s", i.log)
	}
	close(i.engine.leave)
	<-answer
}

func TestNew_drainsForTenSeconds(t *testing.T) {
	if i := start(t, All, memory{newPlain()}); i.server.drainTime != 10*time.Second {
		t.Errorf("calls in flight have %v, want 10 s", i.server.drainTime)
	}
}

// stageAndWait starts a call and returns when the engine has it.
func (i *instance) stageAndWait() (answer chan error) {
	i.engine.entered, i.engine.leave = make(chan struct{}), make(chan struct{})
	answer = make(chan error, 1)
	go func() {
		_, err := i.NodeStageVolume(context.Background(), stageRequest())
		answer <- err
	}()
	<-i.engine.entered
	return answer
}

func TestRun_refusesASocketInUse(t *testing.T) {
	i := start(t, All, memory{newPlain()})
	o := options(All, memory{newPlain()}, i)
	o.Registerer = nil
	second, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); !errors.Is(err, unixsocket.ErrServed) {
		t.Errorf("a second driver on the socket ends with %v, want ErrServed", err)
	}
	_, err = i.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	wantCode(t, err, codes.OK)
}

func TestNew_refusesInvalidOptions(t *testing.T) {
	cases := map[string]func(*Options){
		"mode":              func(o *Options) { o.Mode = "both" },
		"driver name":       func(o *Options) { o.Name = "a_b" },
		"at most 63":        func(o *Options) { o.Name = strings.Repeat("x", 64) },
		"version":           func(o *Options) { o.Version = "" },
		"controller half":   func(o *Options) { o.Guard = nil },
		"node engine":       func(o *Options) { o.Engine = nil },
		"must end in .sock": func(o *Options) { o.Endpoint = "unix:///csi/csi" },
	}
	for want, corrupt := range cases {
		o := options(All, memory{newPlain()}, &instance{engine: &engine{}, socket: "/csi/csi.sock", log: &record{}, registry: prometheus.NewRegistry()})
		corrupt(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New fails with %v, want something about %q", err, want)
		}
	}
}

// One panic is one failed call, with its stack in the log.
func TestUnary_onePanicIsOneInternalError(t *testing.T) {
	chain, out := chain(t)
	request := messagetest.Complete{Message: &csi.DeleteVolumeRequest{VolumeId: "vol-1"}}
	err := call(chain, request, func(context.Context, any) (any, error) { panic("nil map") })
	wantCode(t, err, codes.Internal)
	if !strings.Contains(out.String(), "server_test.go") {
		t.Errorf("the log has no stack: %s", out)
	}
}

func TestUnary_logsAndMeasuresEachCall(t *testing.T) {
	i := start(t, All, memory{newPlain()})
	_, err := i.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: "/s"})
	wantCode(t, err, codes.OK)
	_, err = i.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{})
	wantCode(t, err, codes.InvalidArgument)
	_, err = i.Probe(t.Context(), &csi.ProbeRequest{})
	wantCode(t, err, codes.OK)
	for _, want := range []string{
		`"level":"INFO","msg":"call","component":"driver","rpc":"NodeUnstageVolume","volume":"vol-1","node":"n1","duration":`,
		`"level":"WARN","msg":"call","component":"driver","rpc":"DeleteVolume","volume":"","node":"n1","duration":`,
		`"code":"InvalidArgument","error":"invalid argument: volume_id is missing"`,
	} {
		if !strings.Contains(i.log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, i.log)
		}
	}
	if strings.Contains(i.log.String(), `"rpc":"Probe"`) {
		t.Errorf("a probe that went well is in the ordinary log:\n%s", i.log)
	}
	measured := i.measured(t)
	if len(measured["holdfast_rpc_seconds"]) != 3 {
		t.Errorf("the calls measured are %v, want 3", measured["holdfast_rpc_seconds"])
	}
	if busy := measured["holdfast_rpc_in_flight"]; len(busy) != 1 || busy[0].GetGauge().GetValue() != 0 {
		t.Errorf("the calls in flight are %v, want 0", busy)
	}
}

func (i *instance) measured(t *testing.T) map[string][]*dto.Metric {
	t.Helper()
	families, err := i.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[string][]*dto.Metric{}
	for _, family := range families {
		metrics[family.GetName()] = family.GetMetric()
	}
	return metrics
}
