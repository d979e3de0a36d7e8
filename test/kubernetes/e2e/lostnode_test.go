package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// abandonsALostNode follows the guide for a node that is lost: its claims end, a volume
// with the policy Retain stays as a record, and the node can join again with an empty disk.
func (c *scene) abandonsALostNode() {
	lost := c.cluster.Nodes[1]
	claims := []string{"dropped", "kept", "used"}
	var mounts []func(*corev1.PodSpec)
	for _, name := range claims {
		c.makeClaim(newClaim(name, "64Mi"))
		mounts = append(mounts, withClaim(name))
	}
	c.run(newPod("pod", idle, append(mounts, on(lost))...))
	dropped, kept, used := c.volumeOf("dropped"), c.volumeOf("kept"), c.volumeOf("used")
	c.makeSnapshot("then", "dropped")
	c.waitSnapshot("then")
	must(c)(c.kubectl(c.Context(), "patch", "pv", kept, "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`))
	c.Cleanup(func() {
		_ = c.api.CoreV1().PersistentVolumes().Delete(context.WithoutCancel(c.Context()), kept, metav1.DeleteOptions{})
	})

	restore := c.loseNode(lost)
	c.eventually(func() error {
		_, err := c.getPod("pod")
		return wantGone("pod", err)
	})
	c.eventually(func() error { return c.noCapacityOf(lost) })
	must(c)(c.kubectl(c.Context(), "delete", "pvc", "dropped", "kept"))
	must(c)(c.kubectl(c.Context(), "delete", "volumesnapshot", "then", "--wait=false"))
	c.eventually(func() error { return c.released(dropped, kept) })
	c.eventually(func() error { return c.deletesContent("then") })
	for _, subject := range []string{"pv/" + dropped, "snapshot/then"} {
		c.eventually(func() error {
			answer := c.why(subject)
			for _, words := range []string{lost, "does not exist any more", "holdfast abandon-node " + lost} {
				if !strings.Contains(answer, words) {
					return fmt.Errorf("why %s does not say %q:\n%s", subject, words, answer)
				}
			}
			return nil
		})
	}

	if output, err := c.holdfast("abandon-node", c.cluster.Nodes[0]); err == nil || !strings.Contains(output, "exists") {
		c.Errorf("a node that exists was abandoned: %v\n%s", err, output)
	}
	for volume, word := range map[string]string{dropped: "would end", kept: "stays", used: "stays"} {
		c.expectAbandoned(lost, volume, word, "--dry-run")
	}
	c.expectAbandoned(lost, used, "stays")
	c.waitVolumeGone(dropped)
	c.eventually(func() error {
		_, err := c.snapshots.SnapshotV1().VolumeSnapshots(c.namespace).Get(c.Context(), "then", metav1.GetOptions{})
		return wantGone("snapshot then", err)
	})

	if err := c.released(kept); err != nil {
		c.Errorf("the record of the volume with the policy Retain: %v", err)
	}
	must(c)(c.kubectl(c.Context(), "delete", "pv", kept, "--timeout="+c.timeout.String()))

	// What was in use ends with its claim and a repeated command.
	must(c)(c.kubectl(c.Context(), "delete", "pvc", "used"))
	c.eventually(func() error {
		if _, err := c.holdfast("abandon-node", lost); err != nil {
			return err
		}
		return c.volumesGone(c.Context(), map[string]bool{used: true})
	})

	// The rest of the cluster works, and so does the node with an empty disk.
	c.makeClaim(newClaim("other", "64Mi"))
	c.succeed(newPod("other", writeFile("/other/file", "1m"), withClaim("other")))
	restore()
	c.makeClaim(newClaim("again", "64Mi"))
	c.succeed(newPod("again", writeFile("/again/file", "1m"), withClaim("again"), on(lost)))
}

// loseNode stops a node and deletes its object. The function that it returns starts the
// node with an empty pool; the end of the test calls it too.
func (c *scene) loseNode(name string) (restore func()) {
	c.Helper()
	restored := false
	restore = func() {
		c.Helper()
		if restored {
			return
		}
		restored = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), timeout)
		defer cancel()
		if err := os.RemoveAll(filepath.Join(c.cluster.NodeRoot(name), pool)); err != nil {
			c.Fatal(err)
		}
		if err := c.cluster.StartNode(ctx, name); err != nil {
			c.Fatal(err)
		}
		if err := errors.Join(c.cluster.WaitReady(ctx), c.deployment.WaitReady(ctx)); err != nil {
			c.Fatal(err)
		}
	}
	c.Cleanup(restore)
	if err := c.cluster.StopNode(c.Context(), name); err != nil {
		c.Fatal(err)
	}
	if err := c.api.CoreV1().Nodes().Delete(c.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	return restore
}

// released returns an error until the claims of volumes are gone.
func (c *scene) released(volumes ...string) error {
	for _, name := range volumes {
		pv, err := c.api.CoreV1().PersistentVolumes().Get(c.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pv.Status.Phase != corev1.VolumeReleased {
			return fmt.Errorf("volume %s is %s", name, pv.Status.Phase)
		}
	}
	return nil
}

// deletesContent returns an error until the content of a snapshot is being deleted.
func (c *scene) deletesContent(snapshot string) error {
	list, err := c.snapshots.SnapshotV1().VolumeSnapshotContents().List(c.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, content := range list.Items {
		if ref := content.Spec.VolumeSnapshotRef; ref.Namespace == c.namespace && ref.Name == snapshot && content.DeletionTimestamp != nil {
			return nil
		}
	}
	return fmt.Errorf("no content of snapshot %s is being deleted", snapshot)
}

// expectAbandoned runs abandon-node and checks the line about an object.
func (c *scene) expectAbandoned(node, object, word string, flags ...string) {
	c.Helper()
	output, err := c.holdfast(append([]string{"abandon-node", node}, flags...)...)
	if err != nil {
		c.Fatalf("abandon-node: %v\n%s", err, output)
	}
	lines := strings.Split(output, "\n")
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, object) && strings.Contains(line, word) }) {
		c.Errorf("abandon-node %v says of %s, want %q:\n%s", flags, object, word, output)
	}
}

// noCapacityOf returns an error while the scheduler could select a node for a volume.
func (c *scene) noCapacityOf(node string) error {
	list, err := c.api.StorageV1().CSIStorageCapacities(c.deployment.Options.Namespace).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, one := range list.Items {
		for _, value := range one.NodeTopology.MatchLabels {
			if value == node {
				return fmt.Errorf("CSIStorageCapacity %s is of node %s", one.Name, node)
			}
		}
	}
	return nil
}

// wantGone returns an error unless err is that of an absent object.
func wantGone(what string, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(fmt.Errorf("%s is there", what), err)
}
