package e2e

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeLabel is the label by which a node's process selects its claims and volumes.
const nodeLabel = "holdfast.dev/node"

// selectSteps are the failpoints of the elected process while it selects a node, and those
// of the selected node until the claim has its volume.
var selectSteps = []string{
	"coordinate/select/before", "coordinate/select/after",
	"provision/create/intent", "provision/create/called", "provision/create/answered", "provision/create/saving", "provision/create/saved",
}

// isLabelledForItsNode: the admission policy labels a claim in the write that selects its
// node, and the PersistentVolume has the label from its creation.
func (c *scene) isLabelledForItsNode() {
	node := c.cluster.Nodes[1]
	c.makeClaim(newClaim("data", "16Mi"))
	c.succeed(newPod("user", "true", withClaim("data"), on(node)))
	claim, err := c.getClaim("data")
	if err != nil {
		c.Fatal(err)
	}
	pv, err := c.api.CoreV1().PersistentVolumes().Get(c.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	if claim.Labels[nodeLabel] != node || pv.Labels[nodeLabel] != node {
		c.Errorf("claim and volume of node %s have the labels %v and %v", node, claim.Labels, pv.Labels)
	}
	for _, other := range []string{c.cluster.Nodes[0], node} {
		list, err := c.api.CoreV1().PersistentVolumeClaims(c.namespace).List(c.Context(), metav1.ListOptions{LabelSelector: nodeLabel + "=" + other})
		if err != nil {
			c.Fatal(err)
		}
		if seen := len(list.Items) > 0; seen != (other == node) {
			c.Errorf("the selection of node %s has %d claims", other, len(list.Items))
		}
	}
}

// losesTheElectedProcess makes claims with immediate binding while the driver exits at
// each step of the selection and of the creation. Each claim gets one volume.
func (c *scene) losesTheElectedProcess() {
	c.timeout = 5 * time.Minute
	c.makeClass(c.namespace, nil, func(class *storagev1.StorageClass) { *class.VolumeBindingMode = storagev1.VolumeBindingImmediate })
	c.withFailpoints(once(selectSteps))
	for i := range 6 {
		c.makeClaim(newClaim(fmt.Sprint("claim", i), "16Mi", inClass(c.namespace)))
	}
	for i := range 6 {
		c.eventually(func() error {
			claim, err := c.getClaim(fmt.Sprint("claim", i))
			if err == nil && claim.Status.Phase != corev1.ClaimBound {
				err = fmt.Errorf("claim %s is %s", claim.Name, claim.Status.Phase)
			}
			return err
		})
	}
	var passed []string
	for _, node := range c.cluster.Nodes {
		points, err := c.passed(node)
		if err != nil {
			c.Fatal(err)
		}
		passed = append(passed, points...)
	}
	for _, point := range selectSteps[:2] {
		if !slices.Contains(passed, point) {
			c.Errorf("the driver did not die at %s: it passed %v", point, passed)
		}
	}
	if err := c.clear(c.Context()); err != nil {
		c.Fatal(err)
	}
	c.eventually(func() error { return c.empty(c.Context()) })
}
