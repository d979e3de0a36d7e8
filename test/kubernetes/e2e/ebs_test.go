package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ebsTest is one of the tests; only those with short are in a short run.
type ebsTest struct {
	name  string
	short bool
	run   func(*scene, *emulator)
}

// Several at a time.
var ebsTogether = []ebsTest{
	{"a volume comes back from a snapshot", true, comesBackFromASnapshotOfEBS},
	{"a volume is a block device", false, isABlockDeviceOfEBS},
	{"a volume grows and becomes faster in one change", false, growsAndBecomesFaster},
	{"a volume is cloned", false, isClonedByEBS},
	{"a class that cannot be is refused", false, refusesWhatEBSCannotHave},
	{"a class of the in-tree plugin has volumes", false, servesTheInTreePlugin},
}

// Tests that would disturb others.
var ebsAlone = []ebsTest{
	{"a StatefulSet moves between nodes with its data", true, movesBetweenNodesWithItsData},
	{"the driver of a drained node stays until its volumes are detached", false, outlivesItsVolumes},
	{"the leader dies while volumes are attached", false, losesItsLeaderWhileItAttaches},
	{"a volume leaves an instance that was stopped", false, leavesAStoppedInstance},
}

func TestEBS(t *testing.T) {
	s, ec2 := startEBS(t)
	s.expectNewNodesServed(t)
	run := func(tests []ebsTest, parallel bool) func(*testing.T) {
		return func(t *testing.T) {
			for _, c := range tests {
				if testing.Short() && !c.short {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					if parallel {
						t.Parallel()
					}
					c.run(s.enter(t), ec2)
				})
			}
		}
	}
	t.Run("together", run(ebsTogether, true))
	t.Run("alone", run(ebsAlone, false))
	ec2.expectEmpty(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := s.deployment.Uninstall(ctx); err != nil {
		t.Error(err)
	}
}

// expectNewNodesServed checks the driver on a new node: it registers the instance's ID
// and the volume limit, and then removes the startup taint.
func (s *suite) expectNewNodesServed(t *testing.T) {
	t.Helper()
	for i, name := range s.cluster.Nodes {
		if err := wait(t.Context(), timeout, func() error { return s.isServed(t.Context(), name, instances[i]) }); err != nil {
			t.Errorf("%v\n%s", err, s.deployment.Report(t.Context()))
		}
	}
}

func (s *suite) isServed(ctx context.Context, name, instance string) error {
	node, err := s.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == ebsTaint {
			return fmt.Errorf("node %s has the taint of a new node", name)
		}
	}
	known, err := s.api.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, driver := range known.Spec.Drivers {
		// 27 slots of an m5.large, less its root volume; the instances have one
		// network interface.
		if driver.Name == ebsDriver && (driver.NodeID != instance || driver.Allocatable == nil || *driver.Allocatable.Count != 26) {
			return fmt.Errorf("the driver of node %s is %s with %+v; want %s with 26 volumes", name, driver.NodeID, driver.Allocatable, instance)
		}
	}
	return nil
}

func onEBS(spec *corev1.PersistentVolumeClaimSpec) { inClass(ebsClass)(spec) }

// comesBackFromASnapshotOfEBS restores a snapshot on a node other than the source's.
func comesBackFromASnapshotOfEBS(c *scene, _ *emulator) {
	c.makeClaim(newClaim("data", "1Gi", onEBS))
	c.run(newPod("writer", writeFile("/data/file", "8m")+" && "+idle, withClaim("data"), on(c.cluster.Nodes[0])))
	c.waitWritten("writer", "/data/file.sum")
	sum := c.exec("writer", "sync && cat /data/file.sum")
	c.makeSnapshotOf(ebsClass, "then", "data")
	c.waitSnapshot("then")
	c.exec("writer", writeFile("/data/file", "4m"))
	c.makeClaim(newClaim("restored", "2Gi", onEBS, fromSnapshot("then")))
	c.run(newPod("reader", idle, withClaim("restored"), on(c.cluster.Nodes[1])))
	if got := c.exec("reader", "sha256sum </restored/file"); got != sum {
		c.Errorf("the restored file has sum %q, want %q", got, sum)
	}
	if got := c.exec("reader", "df -Pm /restored | awk 'END {print ($2 > 1500)}'"); got != "1" {
		c.Errorf("the restored filesystem has not grown with its volume: %s", c.exec("reader", "df -m /restored"))
	}
	c.exec("writer", checkFile("/data/file"))
}

func isABlockDeviceOfEBS(c *scene, _ *emulator) {
	c.makeClaim(newClaim("disk", "1Gi", onEBS, asBlock))
	c.succeed(newPod("writer", "yes holdfast | head -c 64m >/dev/disk && sync", withDevice("disk"), on(c.cluster.Nodes[0])))
	c.removePod("writer")
	c.run(newPod("reader", idle, withDevice("disk"), on(c.cluster.Nodes[1])))
	if got := c.exec("reader", "test -b /dev/disk && yes holdfast | head -c 64m | cmp -n 67108864 - /dev/disk && echo same"); got != "same" {
		c.Errorf("the device lacks the written data: %q", got)
	}
}

// growsAndBecomesFaster changes size and IOPS of a volume in use in one modification:
// EC2 limits modifications, so that a second may have to wait for hours.
func growsAndBecomesFaster(c *scene, ec2 *emulator) {
	c.makeClassOf(ebsDriver, c.namespace, map[string]string{"csi.storage.k8s.io/fstype": "xfs"})
	c.makeAttributesClassOf(ebsDriver, c.namespace, map[string]string{"iops": "4000", "throughput": "250"})
	c.makeClaim(newClaim("data", "10Gi", inClass(c.namespace)))
	c.run(newPod("writer", "while dd if=/dev/urandom of=/data/file bs=64k count=64 conv=fsync; do echo >>/data/rounds; done", withClaim("data")))
	c.eventually(func() error { return c.rounds("writer", 1) })
	c.patchClaim("data", fmt.Sprintf(`{"spec":{"volumeAttributesClassName":%q,"resources":{"requests":{"storage":"12Gi"}}}}`, c.namespace))
	c.waitAttributes("data", c.namespace)
	c.resize("data", "12Gi")
	if got := c.exec("writer", "df -Pm /data | awk 'END {print ($2 > 11500)}'"); got != "1" {
		c.Errorf("the filesystem has not grown: %s", c.exec("writer", "df -m /data"))
	}
	volume := c.persistentVolumeOf("data").Spec.CSI.VolumeHandle
	modifications, err := ec2.callsOn(c.Context(), "ModifyVolume", volume)
	if err != nil || modifications != 1 {
		c.Errorf("EC2 was asked for %d modifications of %s (%v); want 1", modifications, volume, err)
	}
}

func isClonedByEBS(c *scene, _ *emulator) {
	c.makeClaim(newClaim("data", "1Gi", onEBS))
	c.run(newPod("writer", writeFile("/data/file", "8m")+" && "+idle, withClaim("data")))
	c.waitWritten("writer", "/data/file.sum")
	c.exec("writer", "sync")
	c.makeClaim(newClaim("clone", "1Gi", onEBS, fromVolume("data")))
	c.run(newPod("reader", idle, withClaim("clone")))
	c.exec("reader", checkFile("/clone/file"))
}

func refusesWhatEBSCannotHave(c *scene, _ *emulator) {
	c.makeClassOf(ebsDriver, c.namespace, map[string]string{"type": "gp3", "throughput": "9000"})
	c.makeClaim(newClaim("data", "4Gi", inClass(c.namespace)))
	c.makePod(newPod("pod", idle, withClaim("data")))
	c.waitEvent("data", "ProvisioningFailed", "throughput 9000")
}

// ebsSet is a StatefulSet of one replica.
func ebsSet() *appsv1.StatefulSet {
	set := statefulSet("set", 1)
	onEBS(&set.Spec.VolumeClaimTemplates[0].Spec)
	set.Spec.VolumeClaimTemplates[0].Spec.Resources = requests("1Gi")
	return set
}

func movesBetweenNodesWithItsData(c *scene, _ *emulator) {
	must(c)(c.api.AppsV1().StatefulSets(c.namespace).Create(c.Context(), ebsSet(), metav1.CreateOptions{}))
	from := c.waitReady("set-0")
	c.exec("set-0", writeFile("/data/file", "8m"))
	for range 2 {
		begun := time.Now()
		c.drain(from)
		to := c.waitReady("set-0")
		if to == from {
			c.Fatalf("the pod is on %s, which is drained", to)
		}
		c.exec("set-0", checkFile("/data/file"))
		c.Logf("from %s to %s in %v", from, to, time.Since(begun).Round(time.Millisecond))
		c.uncordon(from)
		from = to
	}
}

// drain drains a node and uncordons it at the end of the test.
func (c *scene) drain(node string) {
	c.Helper()
	c.Cleanup(func() { c.uncordon(node) })
	if _, err := c.cluster.Kubectl(c.Context(), "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout="+c.timeout.String()); err != nil {
		c.Fatal(err)
	}
}

func (c *scene) uncordon(node string) {
	c.Helper()
	if _, err := c.cluster.Kubectl(context.WithoutCancel(c.Context()), "uncordon", node); err != nil {
		c.Error(err)
	}
}

// outlivesItsVolumes deletes the driver's pod on a node with an attached volume. The
// driver ends at once on a node in use, and after the detachment on a drained node.
func outlivesItsVolumes(c *scene, _ *emulator) {
	node := c.cluster.Nodes[0]
	c.makeClaim(newClaim("data", "1Gi", onEBS))
	c.run(newPod("pod", idle, withClaim("data"), on(node)))
	old := c.nodeDriver(node)
	c.endDriver(old)
	begun := time.Now()
	c.eventually(func() error { return c.driverGone(old) })
	c.Logf("on a node that stays the driver is gone after %v", time.Since(begun).Round(time.Millisecond))
	c.eventually(func() error { return c.deployment.WaitReady(c.Context()) })

	if _, err := c.cluster.Kubectl(c.Context(), "cordon", node); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { c.uncordon(node) })
	old = c.nodeDriver(node)
	c.endDriver(old)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err := c.driverGone(old); err == nil {
			c.Fatal("the driver is gone, and the volume attached")
		}
	}
	begun = time.Now()
	c.removePod("pod")
	c.eventually(func() error {
		gone := c.driverGone(old) == nil // read before the attachments, which may go in between
		attached, err := c.attachments(node)
		if err == nil && attached > 0 {
			if gone {
				c.Fatal("the driver is gone, and the volume attached")
			}
			err = fmt.Errorf("%d volumes are attached to %s", attached, node)
		}
		return err
	})
	c.eventually(func() error { return c.driverGone(old) })
	c.Logf("detached, and the driver gone, %v after the pod was deleted", time.Since(begun).Round(time.Millisecond))
}

// nodeDriver is the driver's pod on a node.
func (c *scene) nodeDriver(node string) *corev1.Pod {
	c.Helper()
	list, err := c.api.CoreV1().Pods(c.deployment.Options.Namespace).List(c.Context(), metav1.ListOptions{
		LabelSelector: c.deployment.Selector() + ",app.kubernetes.io/component=node", FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil || len(list.Items) != 1 {
		c.Fatalf("the driver's pods on %s: %d, %v", node, len(list.Items), err)
	}
	return &list.Items[0]
}

func (c *scene) endDriver(pod *corev1.Pod) {
	c.Helper()
	if err := c.api.CoreV1().Pods(pod.Namespace).Delete(c.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *scene) driverGone(pod *corev1.Pod) error {
	_, err := c.api.CoreV1().Pods(pod.Namespace).Get(c.Context(), pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(fmt.Errorf("the driver's pod %s is there", pod.Name), err)
}

// attachments returns the number of EBS volumes that are attached to a node.
func (s *suite) attachments(node string) (int, error) {
	list, err := s.api.StorageV1().VolumeAttachments().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	count := 0
	for i := range list.Items {
		if isOn(&list.Items[i], node) {
			count++
		}
	}
	return count, nil
}

func isOn(a *storagev1.VolumeAttachment, node string) bool {
	return a.Spec.Attacher == ebsDriver && a.Spec.NodeName == node
}

// losesItsLeaderWhileItAttaches kills the leader during attachments: the other
// controller completes them, and each volume is created once.
func losesItsLeaderWhileItAttaches(c *scene, ec2 *emulator) {
	const many = 8
	before, err := ec2.calls(c.Context(), "CreateVolume")
	if err != nil {
		c.Fatal(err)
	}
	for i := range many {
		name := fmt.Sprintf("data-%d", i)
		c.makeClaim(newClaim(name, "1Gi", onEBS))
		c.makePod(newPod("pod-"+name, idle, withClaim(name), on(c.cluster.Nodes[i%2])))
	}
	c.eventually(func() error {
		attached := 0
		for _, node := range c.cluster.Nodes {
			n, err := c.attachments(node)
			if err != nil {
				return err
			}
			attached += n
		}
		if attached < many/2 {
			return fmt.Errorf("%d volumes are being attached", attached)
		}
		return nil
	})
	leader := c.controllerLeader()
	if _, err := c.deployment.Kubectl(c.Context(), "delete", "pod", leader, "--grace-period=0", "--force"); err != nil {
		c.Fatal(err)
	}
	for i := range many {
		c.waitReady(fmt.Sprintf("pod-data-%d", i))
	}
	c.eventually(func() error {
		if now := c.controllerLeader(); now == leader {
			return fmt.Errorf("%s leads, which is dead", now)
		}
		return nil
	})
	after, err := ec2.calls(c.Context(), "CreateVolume")
	if err != nil || after-before < many {
		c.Errorf("EC2 was asked for %d volumes, %v", after-before, err)
	}
}

// controllerLeader returns the pod that holds the release's lease.
func (c *scene) controllerLeader() string {
	c.Helper()
	list, err := c.api.CoordinationV1().Leases(c.deployment.Options.Namespace).List(c.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Spec.HolderIdentity == nil {
		c.Fatalf("leases: %d, %v", len(list.Items), err)
	}
	name, _, _ := strings.Cut(*list.Items[0].Spec.HolderIdentity, "_")
	return name
}

// leavesAStoppedInstance stops a node and its instance: the volume is detached although
// it was not unmounted, and its pod starts on the other node.
func leavesAStoppedInstance(c *scene, ec2 *emulator) {
	must(c)(c.api.AppsV1().StatefulSets(c.namespace).Create(c.Context(), ebsSet(), metav1.CreateOptions{}))
	lost := c.waitReady("set-0")
	c.exec("set-0", writeFile("/data/file", "8m"))
	instance := instances[0]
	if lost == c.cluster.Nodes[1] {
		instance = instances[1]
	}
	if err := errors.Join(c.cluster.StopNode(c.Context(), lost), ec2.change(c.Context(), instance, "stop")); err != nil {
		c.Fatal(err)
	}
	outOfService := corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute"
	c.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), timeout)
		defer cancel()
		_, untainted := c.cluster.Kubectl(ctx, "taint", "node", lost, outOfService+"-")
		if err := errors.Join(untainted, ec2.change(ctx, instance, "start"), c.cluster.StartNode(ctx, lost), c.cluster.WaitReady(ctx), c.deployment.WaitReady(ctx)); err != nil {
			c.Error(err)
		}
	})
	c.eventually(func() error {
		_, err := c.cluster.Kubectl(c.Context(), "taint", "node", lost, outOfService, "--overwrite")
		return err
	})
	begun := time.Now()
	c.eventually(func() error {
		pod, err := c.getPod("set-0")
		if err == nil && pod.Spec.NodeName == lost {
			err = fmt.Errorf("the pod is on %s, which is lost", lost)
		}
		if err != nil {
			return err
		}
		return ready(pod)
	})
	c.Logf("on the other node %v after the node was said to be lost", time.Since(begun).Round(time.Millisecond))
	c.exec("set-0", checkFile("/data/file"))
}
