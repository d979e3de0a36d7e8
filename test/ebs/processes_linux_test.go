package ebs

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/csi/server/volumemodifier"
	"github.com/holdfast-csi/holdfast/test/ebs/lab"
)

// unprivileged is a user ID without any right on devices, as in the controller's
// container.
const unprivileged = 65534

// failedPrecondition is the number of the gRPC code.
const failedPrecondition = 9

// bench is a lab and a test that uses it.
type bench struct {
	*testing.T
	*lab.Lab
	holdfast string
}

// TestProcesses starts the programs as they are deployed, and with wrong settings.
func TestProcesses(t *testing.T) {
	t.Parallel() // each has an emulator of its own, and most of the time is waiting
	holdfast, emulator := build(t)
	reachable(t)
	for _, c := range []struct {
		name string // short: it is part of the sockets' paths
		test func(*bench)
	}{
		{"way", (*bench).lifeOfAVolume},
		{"node", (*bench).nodeNeverCallsEC2},
		{"modes", (*bench).modesAndTheirArguments},
		{"no metadata", (*bench).controllerWithoutMetadata},
		{"no region", (*bench).controllerWithoutRegion},
		{"killed", (*bench).controllerKilledWhileAttaching},
		{"shared", (*bench).nodeLocalVolume},
		{"modifier", (*bench).volumeModifier},
		{"secrets", (*bench).showsNoSecret},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := open(t, holdfast, emulator)
			reachable(t)
			c.test(&bench{t, l, holdfast})
		})
	}
}

// reachable allows the unprivileged user to start the program and use its socket.
func reachable(t *testing.T) {
	t.Helper()
	if err := os.Chmod(filepath.Dir(t.TempDir()), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) launch(o lab.Launch) *lab.Process {
	b.Helper()
	p, err := b.Launch(b.Context(), o)
	b.must(err)
	return p
}

// controller starts a controller that is not root, and so may open no device.
func (b *bench) controller() *lab.Process {
	b.Helper()
	return b.launch(lab.Launch{Name: "controller", Mode: []string{"controller"}, User: unprivileged, Environment: b.ControllerEnvironment(), Flags: b.ControllerFlags()})
}

func writer() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
}

func (b *bench) create(controller *lab.Process, name string, where *csi.TopologyRequirement) *csi.Volume {
	b.Helper()
	volume, err := controller.Client.CreateVolume(b.Context(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: gibibyte}, Parameters: map[string]string{"type": "gp3"},
		VolumeCapabilities: []*csi.VolumeCapability{writer()}, AccessibilityRequirements: where,
	})
	b.must(err)
	return volume
}

// nodeVolume is a volume on a node, with its paths.
type nodeVolume struct {
	*bench
	node            *lab.Process
	volume          string
	staging, target string
	published       map[string]string
}

func (b *bench) nodeVolume(node *lab.Process, volume string) *nodeVolume {
	b.Helper()
	p := &nodeVolume{bench: b, node: node, volume: volume, staging: filepath.Join(node.KubeletDir, "staging"), target: filepath.Join(node.KubeletDir, "target")}
	b.must(os.MkdirAll(p.staging, 0o750))
	return p
}

func (p *nodeVolume) stage() error {
	return p.node.Client.NodeStageVolume(p.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: p.volume, PublishContext: p.published, StagingTargetPath: p.staging, VolumeCapability: writer(),
	})
}

func (p *nodeVolume) publish() error {
	return p.node.Client.NodePublishVolume(p.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: p.volume, PublishContext: p.published, StagingTargetPath: p.staging, TargetPath: p.target, VolumeCapability: writer(),
	})
}

func (p *nodeVolume) leave() {
	p.Helper()
	p.must(p.node.Client.NodeUnpublishVolume(p.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: p.volume, TargetPath: p.target}))
	p.must(p.node.Client.NodeUnstageVolume(p.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: p.volume, StagingTargetPath: p.staging}))
}

// attached makes the controller attach a volume to the node.
func (p *nodeVolume) attached(controller *lab.Process, instance string) {
	p.Helper()
	var err error
	p.published, err = controller.Client.ControllerPublishVolume(p.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: p.volume, NodeId: instance, VolumeCapability: writer()})
	p.must(err)
}

func (p *nodeVolume) detached(controller *lab.Process, instance string) {
	p.Helper()
	p.must(controller.Client.ControllerUnpublishVolume(p.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: p.volume, NodeId: instance}))
}

// A dynamic volume from its creation until a pod writes to it, and back to its deletion.
// The controller may open no device. The node has no network, so that it can make no EC2
// call. Steps in the wrong order are rejected.
func (b *bench) lifeOfAVolume() {
	instance := lab.Pair()[0]
	controller := b.controller()
	node := b.launch(lab.Launch{
		Name: "node", Mode: []string{"node"}, Offline: true, Environment: []string{"PATH=" + os.Getenv("PATH")},
		Flags: append(b.NodeFlags(instance), "--device-wait=500ms"),
	})
	b.wantNames(controller, node, instance)
	info, err := node.Client.NodeInfo(b.Context())
	b.must(err)
	volume := b.create(controller, "pvc-1", &csi.TopologyRequirement{Requisite: []*csi.Topology{info.GetAccessibleTopology()}})
	if !regexp.MustCompile(`^vol-[0-9a-f]{17}$`).MatchString(volume.GetVolumeId()) {
		b.Errorf("the volume handle is %q; want EC2's own ID", volume.GetVolumeId())
	}
	if zone := volume.GetAccessibleTopology()[0].GetSegments()["topology.kubernetes.io/zone"]; zone != instance.Zone {
		b.Errorf("the volume is in %q; want %s, where the node is", zone, instance.Zone)
	}
	p := b.nodeVolume(node, volume.GetVolumeId())
	if err := p.stage(); err == nil {
		b.Error("a volume was staged that is not attached")
	}
	p.attached(controller, instance.ID)
	if !regexp.MustCompile(`^/dev/(xvd|sd)[a-z]+$`).MatchString(p.published["devicePath"]) {
		b.Errorf("the publish context is %v; want the device path", p.published)
	}
	err = controller.Client.DeleteVolume(b.Context(), &csi.DeleteVolumeRequest{VolumeId: volume.GetVolumeId()})
	if number, ok := client.CodeNumber(err); !ok || number != failedPrecondition || !strings.Contains(err.Error(), instance.ID) {
		b.Errorf("a volume that is attached was deleted, or so: %v", err)
	}
	if err := p.publish(); err == nil {
		b.Error("a volume was published that is not staged")
	}
	b.must(p.stage())
	b.must(p.publish())
	b.must(os.WriteFile(filepath.Join(p.target, "file"), []byte("of a pod"), 0o600))
	p.leave()
	p.detached(controller, instance.ID)
	b.must(controller.Client.DeleteVolume(b.Context(), &csi.DeleteVolumeRequest{VolumeId: volume.GetVolumeId()}))
	leavesNothing(b.T, b.Lab)
}

// wantNames checks the names of plugin, node and topology.
func (b *bench) wantNames(controller, node *lab.Process, instance lab.Instance) {
	b.Helper()
	for _, p := range []*lab.Process{controller, node} {
		info, err := p.Client.PluginInfo(b.Context())
		if err != nil || info.GetName() != "ebs.csi.aws.com" {
			b.Errorf("the plugin is %v, %v", info, err)
		}
	}
	info, err := node.Client.NodeInfo(b.Context())
	b.must(err)
	segments := info.GetAccessibleTopology().GetSegments()
	if info.GetNodeId() != instance.ID || segments["topology.ebs.csi.aws.com/zone"] != instance.Zone || segments["topology.kubernetes.io/zone"] != instance.Zone {
		b.Errorf("the node is %v; want %s in %s", info, instance.ID, instance.Zone)
	}
}

// trap is a web server that must not be called.
type trap struct {
	*httptest.Server
	sprung atomic.Int64
}

func (b *bench) trap() *trap {
	t := &trap{}
	t.Server = httptest.NewUnstartedServer(http.NotFoundHandler())
	t.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			t.sprung.Add(1)
		}
	}
	t.Start()
	b.Cleanup(t.Close)
	return t
}

// A node process should have neither credentials nor a connection to EC2. If it has them,
// it does not use them: it calls neither EC2, nor a proxy, nor the metadata service (its
// flags name the instance).
func (b *bench) nodeNeverCallsEC2() {
	instance, controller, trap := lab.Pair()[0], b.controller(), b.trap()
	node := b.launch(lab.Launch{
		Name: "node", Mode: []string{"node"}, Flags: b.NodeFlags(instance),
		Environment: append(b.ControllerEnvironment(), "AWS_EC2_ENDPOINT="+trap.URL, "AWS_ENDPOINT_URL="+trap.URL, "AWS_ENDPOINT_URL_EC2="+trap.URL,
			"HTTP_PROXY="+trap.URL, "HTTPS_PROXY="+trap.URL, "AWS_EC2_METADATA_SERVICE_ENDPOINT="+trap.URL),
	})
	volume := b.create(controller, "pvc-1", nil)
	p := b.nodeVolume(node, volume.GetVolumeId())
	p.attached(controller, instance.ID)
	_, _, err := b.TakeCalls(b.Context())
	b.must(err)
	b.must(p.stage())
	b.must(p.publish())
	_, err = node.Client.NodeGetVolumeStats(b.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: p.volume, VolumePath: p.target})
	b.must(err)
	_, err = node.Client.NodeInfo(b.Context())
	b.must(err)
	b.must(node.Client.Probe(b.Context()))
	p.leave()
	if calls, _, err := b.TakeCalls(b.Context()); err != nil || calls.Total() > 0 {
		b.Errorf("the node made the calls %v (%v)", calls, err)
	}
	if n := trap.sprung.Load(); n > 0 {
		b.Errorf("the node made %d connections", n)
	}
	p.detached(controller, instance.ID)
	b.must(controller.Client.DeleteVolume(b.Context(), &csi.DeleteVolumeRequest{VolumeId: volume.GetVolumeId()}))
	leavesNothing(b.T, b.Lab)
}

// The mode is the first argument; all is the default. Each mode accepts the flags of its
// examples in the documentation. A controller tags the volumes that it creates.
func (b *bench) modesAndTheirArguments() {
	instance := lab.Pair()[0]
	both := append(b.NodeFlags(instance), b.ControllerFlags()...)
	for _, c := range []struct {
		name             string
		mode             []string
		flags            []string
		controller, node bool
	}{
		{"none", nil, append(both, "--extra-volume-tags=foo=bar"), true, true},
		{"all", []string{"all"}, append(both, "--extra-volume-tags=foo=bar"), true, true},
		{"controller", []string{"controller"}, append(b.ControllerFlags(), "--extra-volume-tags=foo=bar"), true, false},
		{"node", []string{"node"}, b.NodeFlags(instance), false, true},
	} {
		p := b.launch(lab.Launch{Name: c.name, Mode: c.mode, Environment: b.ControllerEnvironment(), Flags: slices.Clone(c.flags)})
		if capabilities, err := p.Client.ControllerCapabilities(b.Context()); (err == nil && capabilities.CreateDelete) != c.controller {
			b.Errorf("mode %s: controller %+v, %v", c.name, capabilities, err)
		}
		if capabilities, err := p.Client.NodeCapabilities(b.Context()); (err == nil && capabilities.Stage) != c.node {
			b.Errorf("mode %s: node %+v, %v", c.name, capabilities, err)
		}
		if !c.controller {
			continue
		}
		volume := b.create(p, "pvc-of-"+c.name, nil)
		if tagged := b.ask("DescribeVolumes", "tag:foo", "bar"); !strings.Contains(tagged, volume.GetVolumeId()) {
			b.Errorf("mode %s: %s does not have the tag; these have: %s", c.name, volume.GetVolumeId(), tagged)
		}
		b.must(p.Client.DeleteVolume(b.Context(), &csi.DeleteVolumeRequest{VolumeId: volume.GetVolumeId()}))
	}
}

// setKnobs changes knobs of the emulator.
func (b *bench) setKnobs(knobs string) {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodPatch, b.Control()+"/knobs", strings.NewReader(knobs))
	b.must(err)
	response, err := http.DefaultClient.Do(request)
	b.must(err)
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		b.Fatalf("knobs %s: %s", knobs, response.Status)
	}
}

// ask calls EC2 with a filter.
func (b *bench) ask(action, filter, value string) string {
	b.Helper()
	return b.call("Action=" + action + "&Filter.1.Name=" + filter + "&Filter.1.Value.1=" + value)
}

// call calls EC2 and returns the answer.
func (b *bench) call(query string) string {
	b.Helper()
	response, err := http.Get(b.Endpoint() + "/?Version=2016-11-15&" + query)
	b.must(err)
	defer func() { _ = response.Body.Close() }()
	text := new(strings.Builder)
	b.must(response.Write(text))
	return text.String()
}

// A controller with a region works without instance metadata, and does not request it.
func (b *bench) controllerWithoutMetadata() {
	trap := b.trap()
	controller := b.launch(lab.Launch{
		Name: "controller", Mode: []string{"controller"}, Flags: b.ControllerFlags(),
		Environment: append(b.ControllerEnvironment(), "AWS_EC2_METADATA_SERVICE_ENDPOINT="+trap.URL),
	})
	volume := b.create(controller, "pvc-1", nil)
	b.must(controller.Client.DeleteVolume(b.Context(), &csi.DeleteVolumeRequest{VolumeId: volume.GetVolumeId()}))
	if n := trap.sprung.Load(); n > 0 {
		b.Errorf("the controller asked for instance metadata %d times", n)
	}
	// A controller without a region does request it, which proves that the trap works.
	ignorant := exec.CommandContext(b.Context(), b.holdfast, "driver", "controller", "--backend=ebs", "--endpoint=unix://"+filepath.Join(b.TempDir(), "csi.sock"))
	ignorant.Env = []string{"AWS_EC2_METADATA_SERVICE_ENDPOINT=" + trap.URL}
	if err := ignorant.Run(); err == nil || trap.sprung.Load() == 0 {
		b.Errorf("a controller without a region: %v, after %d connections", err, trap.sprung.Load())
	}
	// It also starts without a connection to EC2, and reports that.
	offline := b.launch(lab.Launch{Name: "offline", Mode: []string{"controller"}, Offline: true, Environment: b.ControllerEnvironment(), Flags: b.ControllerFlags()})
	if _, err := offline.Client.PluginInfo(b.Context()); err != nil {
		b.Error(err)
	}
	b.eventually("Probe reports that EC2 is unreachable", func() bool { return offline.Client.Probe(b.Context()) != nil })
}

// Without a region and without metadata the controller exits with code 1 within a bound,
// and its error names the setting; with wrong flags it exits with code 2.
func (b *bench) controllerWithoutRegion() {
	socket := "--endpoint=unix://" + filepath.Join(b.TempDir(), "csi.sock")
	for _, c := range []struct {
		arguments []string
		code      int
		says      string
	}{
		{[]string{"driver", "controller", "--backend=ebs", socket}, 1, "set AWS_REGION"},
		{[]string{"driver", "both", "--backend=ebs", socket}, 2, "both"},
		{[]string{"driver", "controller", "--backend=ebs", socket, "--extra-tags=CSIVolumeName=x"}, 2, "CSIVolumeName"},
	} {
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
		defer cancel()
		command := exec.CommandContext(ctx, b.holdfast, c.arguments...)
		command.Env = []string{} // no region, no credentials
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		output, err := command.CombinedOutput()
		if command.ProcessState.ExitCode() != c.code || !strings.Contains(string(output), c.says) {
			b.Errorf("%q: %v, %s; want exit code %d and %q", c.arguments, err, output, c.code, c.says)
		}
	}
}

// The controller is killed while a volume is being attached. Another one, which can only
// read the state from EC2, gets the same call.
func (b *bench) controllerKilledWhileAttaching() {
	instance, first := lab.Pair()[0], b.controller()
	volume := b.create(first, "pvc-1", nil)
	attach := func(p *lab.Process) error {
		_, err := p.Client.ControllerPublishVolume(b.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: volume.GetVolumeId(), NodeId: instance.ID, VolumeCapability: writer()})
		return err
	}
	b.setKnobs(`{"world": {"times": {"attach": "8s"}}}`) // in which it is seen and killed, also by a slow machine
	answer := make(chan error, 1)
	go func() { answer <- attach(first) }()
	b.eventually("AttachVolume is sent", func() bool {
		return strings.Contains(b.ask("DescribeVolumes", "attachment.status", "attaching"), volume.GetVolumeId())
	})
	first.Kill()
	if err := <-answer; err == nil {
		b.Error("a controller that is dead has answered")
	}
	second := b.launch(lab.Launch{Name: "second", Mode: []string{"controller"}, User: unprivileged, Environment: b.ControllerEnvironment(), Flags: b.ControllerFlags()})
	b.must(attach(second))
	calls, _, err := b.TakeCalls(b.Context())
	if err != nil || calls["AttachVolume"] != 1 {
		b.Errorf("calls %v, %v; want one AttachVolume", calls, err)
	}
	b.must(second.Client.ControllerUnpublishVolume(b.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: volume.GetVolumeId(), NodeId: instance.ID}))
	b.must(second.Client.DeleteVolume(b.Context(), &csi.DeleteVolumeRequest{VolumeId: volume.GetVolumeId()}))
	leavesNothing(b.T, b.Lab)
}

// One PersistentVolume for several nodes: its handle names a device, and each node mounts
// the volume that it has under that name.
func (b *bench) nodeLocalVolume() {
	const handle = "local-ebs://dev/sdf"
	controller := b.launch(lab.Launch{Name: "controller", Mode: []string{"controller"}, User: unprivileged,
		Environment: b.ControllerEnvironment(), Flags: append(b.ControllerFlags(), "--enable-node-local-volumes=true")})
	var places []*nodeVolume
	for _, instance := range lab.Pair() {
		made := regexp.MustCompile(`vol-[0-9a-f]{17}`).FindString(b.call("Action=CreateVolume&Size=1&AvailabilityZone=" + instance.Zone))
		b.call("Action=AttachVolume&Device=/dev/sdf&InstanceId=" + instance.ID + "&VolumeId=" + made)
		node := b.launch(lab.Launch{Name: instance.ID, Mode: []string{"node"}, Offline: true,
			Environment: []string{"PATH=" + os.Getenv("PATH")}, Flags: b.NodeFlags(instance)})
		p := b.nodeVolume(node, handle)
		p.attached(controller, instance.ID)
		if p.published["volumeID"] != made {
			b.Errorf("published %v; want %s", p.published, made)
		}
		b.must(p.stage())
		b.must(p.publish())
		b.must(os.WriteFile(filepath.Join(p.target, instance.ID), nil, 0o600))
		places = append(places, p)
	}
	for i, p := range places {
		other := lab.Pair()[1-i].ID
		if _, err := os.Stat(filepath.Join(p.target, other)); err == nil {
			b.Errorf("the volume of %s has the file of %s", lab.Pair()[i].ID, other)
		}
		p.leave()
		p.detached(controller, lab.Pair()[i].ID)
		b.call("Action=DetachVolume&VolumeId=" + p.published["volumeID"])
		b.call("Action=DeleteVolume&VolumeId=" + p.published["volumeID"])
	}
	leavesNothing(b.T, b.Lab)
}

// The sidecar volume-modifier-for-k8s calls its own service on the CSI socket.
func (b *bench) volumeModifier() {
	controller := b.controller()
	connection, err := grpc.NewClient(strings.Replace(controller.Socket, "unix://", "unix:", 1), grpc.WithTransportCredentials(insecure.NewCredentials()))
	b.must(err)
	b.Cleanup(func() { _ = connection.Close() })
	modifier := volumemodifier.NewModifyClient(connection)
	_, err = modifier.GetCSIDriverModificationCapability(b.Context(), &volumemodifier.GetCSIDriverModificationCapabilityRequest{})
	b.must(err)
	volume := b.create(controller, "pvc-1", nil).GetVolumeId()
	_, err = modifier.ModifyVolumeProperties(b.Context(), &volumemodifier.ModifyVolumePropertiesRequest{
		Name: volume, Parameters: map[string]string{"volumeType": "gp3", "throughput": "200", "tagSpecification_1": "team=a"},
	})
	b.must(err)
	now := b.ask("DescribeVolumes", "tag:team", "a")
	if !strings.Contains(now, volume) || !strings.Contains(now, "<throughput>200</throughput>") {
		b.Errorf("the volume is %s; want 200 MiB/s and the tag", now)
	}
	b.must(controller.Client.DeleteVolume(b.Context(), &csi.DeleteVolumeRequest{VolumeId: volume}))
	leavesNothing(b.T, b.Lab)
}

func (b *bench) eventually(what string, done func() bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	for !done() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			b.Errorf("after 2 minutes this has not happened: %s", what)
			return
		}
	}
}
