package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/test/kubernetes/deployment"
)

// controlSteps are failpoints between a call of the driver and the write of its result,
// and between two steps of the driver itself.
var controlSteps = []string{
	"provision/create/intent", "provision/create/called", "provision/create/answered", "provision/create/saved",
	"local/create/directory", "local/create/intent", "local/create/sized", "local/create/ready",
	"provision/delete/called", "provision/delete/removed", "local/delete/checked", "local/discard/renamed", "local/discard/removed",
	"snapshot/marked", "snapshot/called", "snapshot/status", "snapshot/deleted", "local/snapshot/synced", "local/snapshot/ready",
	"groupsnapshot/marked", "groupsnapshot/called", "groupsnapshot/status", "groupsnapshot/deleted",
	"local/group/ready", "local/group/member", "local/group/deleting",
	"resize/begun", "resize/called", "resize/volume-written", "local/expand/grown", "local/expand/recorded",
	"modify/begun", "modify/called", "modify/volume-written", "local/modify/allocated", "local/modify/recorded",
}

// nodeSteps are those on a volume's way into a pod and out of it.
var nodeSteps = []string{
	"local/device/attached", "local/format/marked", "node/stage/device", "node/publish/made",
	"node/inline/created", "node/inline/made", "node/expand/grown", "node/unstage/cleared", "node/unstage/closed",
}

// once makes the driver exit the first time that it reaches each failpoint.
func once(points []string) string {
	return strings.Join(points, "=kill-once;") + "=kill-once"
}

// diesWhileItControls creates, copies, modifies and deletes volumes and snapshots
// concurrently while the driver exits again and again. All operations must complete, and
// nothing may leak.
func (c *scene) diesWhileItControls() {
	c.timeout = 5 * time.Minute
	c.makeClass(c.namespace, map[string]string{"csi.storage.k8s.io/fstype": "xfs"})
	c.makeAttributesClass(c.namespace, map[string]string{"provisioning": "thick"})
	labels := map[string]string{"group": c.namespace}
	for _, name := range []string{"source", "second"} {
		claim := newClaim(name, "64Mi")
		claim.Labels = labels
		c.makeClaim(claim)
	}
	c.makeClaim(newClaim("deleted", "64Mi"))
	c.makeClaim(newClaim("growing", "320Mi", inClass(c.namespace)))
	home := on(c.cluster.Nodes[0])
	c.run(newPod("user", writeFile("/source/file", "8m")+" && "+idle, withClaim("source"), withClaim("second"), home))
	c.succeed(newPod("maker", "true", withClaim("deleted"), withClaim("growing"), home))
	c.removePod("maker")
	c.waitWritten("user", "/source/file.sum")
	c.exec("user", "sync")
	c.makeSnapshot("before", "source")
	c.waitSnapshot("before")
	deleted := c.volumeOf("deleted")

	c.withFailpoints(once(controlSteps))
	c.makeSnapshot("during", "source")
	c.makeGroupSnapshot("group", labels)
	c.makeClaim(newClaim("restored", "64Mi", fromSnapshot("before")))
	c.makeClaim(newClaim("cloned", "64Mi", fromVolume("source")))
	c.makeClaim(newClaim("new", "64Mi"))
	c.patchClaim("growing", `{"spec":{"resources":{"requests":{"storage":"400Mi"}}}}`)
	c.patchClaim("source", fmt.Sprintf(`{"spec":{"volumeAttributesClassName":%q}}`, c.namespace))
	if err := c.api.CoreV1().PersistentVolumeClaims(c.namespace).Delete(c.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	c.makePod(newPod("copies", idle, withClaim("restored"), withClaim("cloned"), withClaim("new"), withClaim("growing"), home))
	c.waitSnapshot("during")
	c.waitGroupSnapshot("group")
	c.waitAttributes("source", c.namespace)
	c.waitVolumeGone(deleted)
	c.waitReady("copies")
	c.exec("copies", checkFile("/restored/file")+" && "+checkFile("/cloned/file"))
	c.resize("growing", "400Mi")
	c.exec("user", checkFile("/source/file"))
	if err := c.clear(c.Context()); err != nil {
		c.Fatal(err)
	}
	c.eventually(func() error { return c.empty(c.Context()) })
	c.expectPassed(c.cluster.Nodes[0], controlSteps)
}

// diesWhileItMounts makes the driver exit at each step of mounting, expanding and
// unmounting volumes.
func (c *scene) diesWhileItMounts() {
	c.timeout = 5 * time.Minute // the kubelet's backoff grows to two minutes
	c.makeClass(c.namespace, map[string]string{"csi.storage.k8s.io/fstype": "xfs"})
	c.withFailpoints(once(nodeSteps))
	inline := corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: deployment.LocalDriver, VolumeAttributes: map[string]string{"size": "16Mi"}}}
	c.makeClaim(newClaim("data", "320Mi", inClass(c.namespace)))
	c.run(newPod("pod", writeFile("/data/file", "8m")+" && "+writeFile("/scratch/file", "1m")+" && "+idle,
		withClaim("data"), withVolume("scratch", inline), on(c.cluster.Nodes[0])))
	c.waitWritten("pod", "/scratch/file.sum")
	c.resize("data", "400Mi")
	c.exec("pod", checkFile("/data/file")+" && "+checkFile("/scratch/file"))
	c.removePod("pod")
	c.succeed(newPod("reader", checkFile("/data/file"), withClaim("data")))
	if err := c.clear(c.Context()); err != nil {
		c.Fatal(err)
	}
	c.eventually(func() error { return c.empty(c.Context()) })
	c.expectPassed(c.cluster.Nodes[0], nodeSteps)
}

// waitAttributes waits until the claim's status has the class.
func (c *scene) waitAttributes(claim, class string) {
	c.Helper()
	c.eventually(func() error {
		now, err := c.getClaim(claim)
		if err == nil && (now.Status.CurrentVolumeAttributesClassName == nil || *now.Status.CurrentVolumeAttributesClassName != class) {
			err = fmt.Errorf("the class of claim %s is not %s: %v %v", claim, class, now.Status.ModifyVolumeStatus, now.Status.Conditions)
		}
		return err
	})
}

// expectPassed fails the test unless a node's driver reached these failpoints, and so
// exited there. One failpoint of an operation (names with the same prefix) is enough: a
// driver that exits after a write need not reach the next failpoint again, nor one that
// another goroutine was about to reach.
func (c *scene) expectPassed(node string, want []string) {
	c.Helper()
	passed, err := c.passed(node)
	if err != nil {
		c.Fatal(err)
	}
	died := make(map[string]int)
	for _, point := range want {
		if slices.Contains(passed, point) {
			died[path.Dir(point)]++
		} else {
			died[path.Dir(point)] += 0
		}
	}
	for operation, times := range died {
		if times == 0 {
			c.Errorf("the driver did not die within %s: it passed %s", operation, strings.Join(passed, ", "))
		}
	}
	c.Logf("deaths of the driver on %s by operation: %v", node, died)
}

// passed lists the failpoints that a node's driver has reached.
func (c *scene) passed(node string) ([]string, error) {
	data, err := os.ReadFile(c.traceFile(node))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	lines := strings.Fields(string(data))
	slices.Sort(lines)
	return slices.Compact(lines), nil
}

// The driver exits after it has created a volume and before it answers. The claim is
// deleted meanwhile, so that only the driver's intent names the volume
// (kubernetes-csi/external-provisioner#486).
func (c *scene) diesBeforeTheVolumeIsKnown() {
	c.withFailpoints("provision/create/called=kill")
	c.makeClaim(newClaim("data", "64Mi"))
	c.makePod(newPod("pod", idle, withClaim("data")))
	c.eventually(func() error {
		stored, err := c.stored(c.Context())
		if err == nil && len(stored) == 0 {
			err = errors.New("the pools have no volume")
		}
		return err
	})
	c.eventually(func() error { return c.everDied() })
	c.removePod("pod")
	if err := c.api.CoreV1().PersistentVolumeClaims(c.namespace).Delete(c.Context(), "data", metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	c.eventually(func() error {
		list, err := c.api.CoreV1().PersistentVolumeClaims(c.namespace).List(c.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = errors.New("the claim is there")
		}
		return err
	})
	stored, err := c.stored(c.Context())
	if err != nil || len(stored) == 0 {
		c.Fatalf("the volume should still be there, without a claim: %v, %v", stored, err)
	}
	c.restoreDriver()
	c.eventually(func() error { return c.empty(c.Context()) })
}

// everDied returns an error until a container of the driver has restarted.
func (c *scene) everDied() error {
	list, err := c.api.CoreV1().Pods(c.deployment.Options.Namespace).List(c.Context(), metav1.ListOptions{LabelSelector: c.deployment.Selector()})
	if err != nil {
		return err
	}
	for _, pod := range list.Items {
		for _, status := range pod.Status.ContainerStatuses {
			if status.RestartCount > 0 {
				return nil
			}
		}
	}
	return errors.New("no driver has died")
}
