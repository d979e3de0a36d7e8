package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/test/kubernetes/cluster"
	"github.com/holdfast-csi/holdfast/test/kubernetes/deployment"
)

const (
	ebsDriver = "ebs.csi.aws.com"
	ebsClass  = "holdfast-ebs" // the chart's name of the StorageClass, and of those of snapshots
	ebsZone   = "us-west-2a"
	ebsRegion = "us-west-2"
	// hardware is the directory of the instance's devices, on the node and in the driver's
	// container.
	hardware = "/opt/instance"
	// ebsTaint is on nodes that are new.
	ebsTaint = ebsDriver + "/agent-not-ready"
)

// instances are those of the nodes, in their order.
var instances = []string{"i-0aaaaaaaaaaaaaaa1", "i-0bbbbbbbbbbbbbbb2"}

// emulator is the EC2 emulator (cmd/ec2emu), which runs outside the cluster, with loop
// devices.
type emulator struct {
	dir                         string
	endpoint, control, metadata string // addresses
	process                     *program
	roots                       map[string]bool // files of the instances' own volumes
}

// startEmulator starts an instance for each node of a cluster. A node has its instance's
// devices below hardware.
func startEmulator(t *testing.T, c *cluster.Cluster) *emulator {
	t.Helper()
	dir := c.Dir // the emulator writes below this directory only, which has the nodes
	t.Cleanup(func() {
		for _, of := range []string{"volumes", "snapshots", "instances"} {
			if err := os.RemoveAll(filepath.Join(dir, of)); err != nil {
				t.Error(err)
			}
		}
	})
	at := func(port string) string { return net.JoinHostPort(c.Machine().String(), port) }
	e := &emulator{dir: dir, endpoint: at("4580"), control: at("4581"), metadata: at("4590")}
	// The metadata service knows the first node's pods; the other node has only
	// its Node object to learn from.
	e.process = startProgram(t, dir, "ec2emu", filepath.Join(absolute(t, "../../.."), "bin/kubernetes/ec2emu"),
		"--address="+e.endpoint, "--control-address="+e.control, "--metadata-address="+e.metadata, "--root="+dir, "--region="+ebsRegion,
		"--instance="+instances[0]+"=m5.large,"+ebsZone+",network="+c.PodNetwork(c.Nodes[0]).String(),
		"--instance="+instances[1]+"=m5.large,"+ebsZone)
	t.Cleanup(e.stop)
	if err := wait(t.Context(), timeout, e.answers); err != nil {
		t.Fatal(err)
	}
	e.roots = e.files(t)
	for i, node := range c.Nodes {
		e.build(t, instances[i], filepath.Join(c.NodeRoot(node), hardware))
	}
	return e
}

// stop ends the emulator, which then removes its devices.
func (e *emulator) stop() {
	_ = e.process.command.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case err := <-e.process.ended:
		e.process.ended <- err
	case <-time.After(time.Minute):
	}
}

func (e *emulator) answers() error {
	connection, err := net.DialTimeout("tcp", e.endpoint, time.Second)
	if err != nil {
		return err
	}
	return connection.Close()
}

// build moves the devices of an instance to its node's directory.
func (e *emulator) build(t *testing.T, instance, target string) {
	t.Helper()
	source := filepath.Join(e.dir, "instances", instance)
	for _, step := range []func() error{
		func() error { return os.RemoveAll(target) },
		func() error { return os.MkdirAll(filepath.Dir(target), 0o755) },
		func() error { return os.Rename(source, target) },
		func() error { return link(target, source) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// link makes a relative link: the emulator follows no link out of its directory.
func link(target, source string) error {
	relative, err := filepath.Rel(filepath.Dir(source), target)
	if err != nil {
		return err
	}
	return os.Symlink(relative, source)
}

// values are those of the chart for this EC2.
func (e *emulator) values() []string {
	return []string{
		"log.level=info", "backend=ebs", "installSnapshotClasses=always",
		"ebs.region=" + ebsRegion, "ebs.endpoint=http://" + e.endpoint, "ebs.credentials.secret=aws-secret",
		"ebs.sysRoot=" + hardware + "/sys", "ebs.devRoot=" + hardware + "/dev",
		"node.extraVolumes[0].name=hardware", "node.extraVolumes[0].hostPath.path=" + hardware,
		"node.extraVolumeMounts[0].name=hardware", "node.extraVolumeMounts[0].mountPath=" + hardware,
		"node.extraEnv[0].name=AWS_EC2_METADATA_SERVICE_ENDPOINT", "node.extraEnv[0].value=http://" + e.metadata,
		"node.terminationGracePeriodSeconds=60",
	}
}

// files are those of volumes and snapshots.
func (e *emulator) files(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, kind := range []string{"volumes", "snapshots"} {
		entries, err := os.ReadDir(filepath.Join(e.dir, kind))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			found[entry.Name()] = true
		}
	}
	return found
}

// expectEmpty fails the test if volumes or snapshots are left, and logs the last calls of
// EC2.
func (e *emulator) expectEmpty(t *testing.T) {
	t.Helper()
	err := wait(t.Context(), timeout, func() error {
		left := e.files(t)
		maps.DeleteFunc(left, func(name string, _ bool) bool { return e.roots[name] })
		if len(left) > 0 {
			return fmt.Errorf("EC2 has %v", slices.Sorted(maps.Keys(left)))
		}
		return nil
	})
	if err == nil {
		return
	}
	journal, unread := e.journal(t.Context())
	if unread != nil {
		t.Error(unread)
	}
	for _, call := range journal {
		if !strings.HasPrefix(call.Action, "Describe") {
			t.Logf("%s %s %s %v", call.Start.Format(time.TimeOnly), call.Action, call.Code, call.Resources)
		}
	}
	t.Errorf("when all is deleted, %v", err)
}

// call is one entry of the emulator's journal.
type call struct {
	Start        time.Time
	Action, Code string
	Resources    []string // the IDs in the parameters
}

func (e *emulator) journal(ctx context.Context) ([]call, error) {
	var calls []call
	err := e.ask(ctx, http.MethodGet, "/journal", &calls)
	return calls, err
}

// callsOn is the number of calls of an action that name a volume. Other tests may call
// EC2 for theirs meanwhile.
func (e *emulator) callsOn(ctx context.Context, action, volume string) (int, error) {
	journal, err := e.journal(ctx)
	count := 0
	for _, c := range journal {
		if c.Action == action && slices.Contains(c.Resources, volume) {
			count++
		}
	}
	return count, err
}

// calls is the number of calls of an action of EC2.
func (e *emulator) calls(ctx context.Context, action string) (int, error) {
	var statistics struct {
		Actions map[string]struct{ Calls int }
	}
	err := e.ask(ctx, http.MethodGet, "/statistics", &statistics)
	return statistics.Actions[action].Calls, err
}

// change is one of an instance's: stop, start and so on.
func (e *emulator) change(ctx context.Context, instance, what string) error {
	return e.ask(ctx, http.MethodPost, "/instances/"+instance+"/"+what, &struct{}{})
}

func (e *emulator) ask(ctx context.Context, method, path string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+e.control+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("EC2's emulator: %s %s: %s", method, path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// startEBS brings up a cluster of two instances whose nodes are new, and the
// driver on it.
func startEBS(t *testing.T) (*suite, *emulator) {
	t.Helper()
	s := up(t, cluster.Options{Dir: "e2e-ebs", Zone: ebsZone})
	e := startEmulator(t, s.cluster)
	kubectl := func(args ...string) {
		t.Helper()
		if _, err := s.cluster.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	for i, node := range s.cluster.Nodes {
		// What the cloud's controller writes.
		kubectl("patch", "node", node, "-p", fmt.Sprintf(`{"spec":{"providerID":"aws:///%s/%s"}}`, ebsZone, instances[i]))
		kubectl("label", "node", node, "node.kubernetes.io/instance-type=m5.large")
		kubectl("taint", "node", node, ebsTaint+":NoExecute")
	}
	kubectl("create", "namespace", "holdfast-system")
	kubectl("--namespace=holdfast-system", "create", "secret", "generic", "aws-secret",
		"--from-literal=key_id=AKIAEXAMPLE", "--from-literal=access_key=example")
	s.install(t, deployment.Options{Driver: ebsDriver, Values: e.values()})
	return s, e
}
