package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/test/kubernetes/deployment"
)

// keepsOffNodesWithoutTheDriver: with preventPodSchedulingIfMissing the scheduler selects only
// nodes with the driver for pods with new volumes, and says why it selects none. It does not
// look at inline volumes.
func (c *scene) keepsOffNodesWithoutTheDriver() {
	c.timeout = 5 * time.Minute
	c.Cleanup(c.restoreDriver)
	has, lacks := c.cluster.Nodes[0], c.cluster.Nodes[1]
	// Upgrade would wait until the driver is registered on all nodes.
	err := c.deployment.Apply(c.Context(), c.deployment.Options.Image, append([]string{
		"csiDriver.preventPodSchedulingIfMissing=true", `node.nodeSelector.kubernetes\.io/hostname=` + has,
	}, chartValues...)...)
	if err != nil {
		c.Fatal(err)
	}
	c.eventually(func() error { return errors.Join(c.registered(lacks, false), c.registered(has, true)) })
	withVolume := func(name string, more ...func(*corev1.PodSpec)) *corev1.Pod {
		c.makeClaim(newClaim(name, "16Mi"))
		return newPod(name, idle, append(more, withClaim(name))...)
	}
	c.makePod(withVolume("pinned", on(lacks)))
	for i := range 4 {
		name := fmt.Sprint("pod", i)
		if node := c.run(withVolume(name)); node != has {
			c.Errorf("%s runs on %s, which lacks the driver", name, node)
		}
	}
	c.eventually(func() error { return c.unschedulable("pinned", "CSI driver is not installed on the node") })
	c.restoreDriver()
	// The scheduler of 1.37 tries "pinned" again after some minutes only.
	c.run(withVolume("later", on(lacks)))
}

// registered returns an error unless the driver is registered on a node, or is not.
func (c *scene) registered(node string, want bool) error {
	csiNode, err := c.api.StorageV1().CSINodes().Get(c.Context(), node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	found := slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == deployment.LocalDriver })
	if found != want {
		return fmt.Errorf("CSINode %s has the driver: %t", node, found)
	}
	return nil
}

// unschedulable returns an error unless the scheduler has found no node for a pod, for a
// reason.
func (c *scene) unschedulable(name, reason string) error {
	pod, err := c.getPod(name)
	if err != nil {
		return err
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable &&
			strings.Contains(condition.Message, reason) {
			return nil
		}
	}
	return fmt.Errorf("pod %s is on node %q: %v", name, pod.Spec.NodeName, pod.Status.Conditions)
}
