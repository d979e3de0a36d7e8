package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/test/kubernetes/cluster"
	"github.com/holdfast-csi/holdfast/test/kubernetes/leftovers"
)

// binaries is where `make kubernetes-binaries` puts the programs.
const binaries = "../../../bin/kubernetes"

// up starts a cluster that ends with the test, and complains if anything of it
// is left then.
func up(t *testing.T) *cluster.Cluster {
	t.Helper()
	watch := leftovers.Start(t)
	dir := t.TempDir()
	c, err := cluster.Up(t.Context(), cluster.Options{
		Dir: dir, Binaries: binaries, Images: []string{filepath.Join(binaries, "images.tar")}, Attached: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	watch.Cluster = c.ID
	t.Cleanup(func() {
		begun := time.Now()
		if err := cluster.Down(dir); err != nil {
			t.Error(err)
		}
		t.Logf("down after %v", time.Since(begun))
	})
	return c
}

func kubectl(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	output, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// apply hands objects to kubectl in a file.
func apply(t *testing.T, c *cluster.Cluster, objects ...any) {
	t.Helper()
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "objects.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, "apply", "-f", path)
}

// pod runs a shell script on a node. The service account, which the controller
// manager makes a little after the start, must be there.
func pod(name, node, script string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"nodeName":                      node,
			"terminationGracePeriodSeconds": 0,
			"containers": []any{map[string]any{
				"name": "main", "image": "registry.k8s.io/e2e-test-images/busybox:1.37.0-2",
				"command": []string{"sh", "-c", script},
			}},
		},
	}
}

func run(t *testing.T, c *cluster.Cluster, pods ...map[string]any) {
	t.Helper()
	var objects []any
	args := []string{"wait", "--for=condition=Ready", "--timeout=2m"}
	for _, p := range pods {
		objects = append(objects, p)
		args = append(args, "pod/"+p["metadata"].(map[string]any)["name"].(string))
	}
	apply(t, c, objects...)
	kubectl(t, c, args...)
}

func TestCluster_runsAPodOnEachNode(t *testing.T) {
	c := up(t)
	var pods []map[string]any
	for _, node := range c.Nodes {
		pods = append(pods, pod("on-"+node, node, "echo hello from $HOSTNAME; sleep 1000000"))
	}
	run(t, c, pods...)
	for _, node := range c.Nodes {
		if got := kubectl(t, c, "exec", "on-"+node, "--", "sh", "-c", "echo $((6*7))"); got != "42\n" {
			t.Errorf("exec on %s printed %q, want 42", node, got)
		}
		if got := kubectl(t, c, "logs", "on-"+node); !strings.Contains(got, "hello from on-"+node) {
			t.Errorf("the log of on-%s is %q", node, got)
		}
	}
	for _, node := range c.Nodes {
		got, err := c.OnNode(t.Context(), node, "hostname")
		if err != nil || got != node+"\n" {
			t.Errorf("on %s, hostname prints %q, %v", node, got, err)
		}
	}
	other := strings.TrimSpace(kubectl(t, c, "get", "pod", "on-node-2", "-o", "jsonpath={.status.podIP}"))
	kubectl(t, c, "exec", "on-node-1", "--", "ping", "-c", "1", "-W", "5", other)
}

func TestCluster_servesTheAPIWithinPods(t *testing.T) {
	c := up(t)
	agnhost := pod("client", "node-2", "")
	agnhost["spec"].(map[string]any)["containers"] = []any{map[string]any{
		"name": "main", "image": "registry.k8s.io/e2e-test-images/agnhost:2.66.1", "args": []string{"inclusterclient", "--poll-interval=1"},
	}}
	run(t, c, agnhost)
	// It asks /healthz with the token and the CA of its service account.
	eventually(t, time.Minute, func() error {
		if log := kubectl(t, c, "logs", "client"); !strings.Contains(log, "calling /healthz") || strings.Contains(log, "err:") {
			return fmt.Errorf("the log of the client is %q", log)
		}
		return nil
	})
}

// eventually waits for two minutes at least: the machine may be slow.
func eventually(t *testing.T, timeout time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(max(timeout, 2*time.Minute))
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func TestCluster_mountsOfAPodReachItsNodeAndNoOther(t *testing.T) {
	c := up(t)
	mounter := func(name, node, script, propagation string) map[string]any {
		p := pod(name, node, script)
		spec := p["spec"].(map[string]any)
		spec["volumes"] = []any{map[string]any{
			"name": "shared", "hostPath": map[string]any{"path": "/var/lib/kubelet/shared", "type": "DirectoryOrCreate"},
		}}
		main := spec["containers"].([]any)[0].(map[string]any)
		main["securityContext"] = map[string]any{"privileged": true}
		main["volumeMounts"] = []any{map[string]any{"name": "shared", "mountPath": "/shared", "mountPropagation": propagation}}
		return p
	}
	run(t, c,
		mounter("reader", "node-1", "sleep 1000000", "HostToContainer"),
		mounter("stranger", "node-2", "sleep 1000000", "HostToContainer"))
	run(t, c, mounter("writer", "node-1",
		"mkdir /shared/m && mount -t tmpfs t /shared/m && echo seen > /shared/m/file && sleep 1000000", "Bidirectional"))
	eventually(t, 30*time.Second, func() error {
		got, err := c.Kubectl(t.Context(), "exec", "reader", "--", "cat", "/shared/m/file")
		if err == nil && got != "seen\n" {
			err = fmt.Errorf("the reader sees %q", got)
		}
		return err
	})
	if got := kubectl(t, c, "exec", "stranger", "--", "ls", "/shared"); got != "" {
		t.Errorf("the other node has %q in its directory", got)
	}
}

func TestStopNode_endsItsPodsAndStartNodeBringsItBack(t *testing.T) {
	c := up(t)
	run(t, c, pod("here", "node-1", "sleep 1000000"), pod("there", "node-2", "sleep 1000000"))
	if err := c.StopNode(t.Context(), "node-2"); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if got, err := c.Kubectl(brief, "exec", "there", "--", "true"); err == nil {
		t.Errorf("a pod on a node that is off still answers %q", got)
	}
	kubectl(t, c, "exec", "here", "--", "true")
	if err := c.StartNode(t.Context(), "node-2"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	run(t, c, pod("again", "node-2", "sleep 1000000"))
}

func TestRestartKubelet_leavesContainersAlone(t *testing.T) {
	c := up(t)
	run(t, c, pod("steady", "node-1", "sleep 1000000"))
	if err := c.RestartKubelet(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		_, err := c.Kubectl(t.Context(), "exec", "steady", "--", "true")
		return err
	})
	got := kubectl(t, c, "get", "pod", "steady", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
	if got != "0" {
		t.Errorf("the container was started again %s times", got)
	}
}

// A loop device that a pod has set up is all that outlives the supervisor.
func TestDown_removesTheRemainsOfAKilledSupervisor(t *testing.T) {
	c := up(t)
	p := pod("looper", "node-1", "truncate -s 1M /host/file && losetup -f /host/file && sleep 1000000")
	spec := p["spec"].(map[string]any)
	spec["volumes"] = []any{
		map[string]any{"name": "host", "hostPath": map[string]any{"path": "/var/lib/looper", "type": "DirectoryOrCreate"}},
		map[string]any{"name": "dev", "hostPath": map[string]any{"path": "/dev"}},
	}
	main := spec["containers"].([]any)[0].(map[string]any)
	main["securityContext"] = map[string]any{"privileged": true}
	main["volumeMounts"] = []any{
		map[string]any{"name": "host", "mountPath": "/host"}, map[string]any{"name": "dev", "mountPath": "/dev"},
	}
	run(t, c, p)
	eventually(t, 10*time.Second, func() error {
		output, err := exec.CommandContext(t.Context(), "losetup", "--associated", filepath.Join(c.NodeRoot("node-1"), "var/lib/looper/file")).Output()
		if err == nil && len(output) == 0 {
			err = fmt.Errorf("no loop device has the pod's file")
		}
		return err
	})
	kill(t, c)
	if _, err := cluster.Open(c.Dir); err == nil {
		t.Error("a cluster whose supervisor has been killed can be opened")
	}
}

// kill kills the supervisor, as a crash does.
func kill(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.Dir, "cluster.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record struct{ Supervisor struct{ PID int } }
	if err := json.Unmarshal(data, &record); err != nil {
		t.Fatal(err)
	}
	process, err := os.FindProcess(record.Supervisor.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", record.Supervisor.PID)); err == nil {
			return fmt.Errorf("the supervisor is still there")
		}
		return nil
	})
}
