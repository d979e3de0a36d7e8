package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/test/kubernetes/cluster"
)

// scaleDriver is the driver of test/scale, which simulates nodes with storage of their own.
// Its class and its topology key are called as below.
const (
	scaleDriver  = "scale.simulated.holdfast.dev"
	scaleClass   = "scale"
	scaleNodeKey = "node"
)

// scaleSizes are the sizes of the nodes' storage, in volumes.
var scaleSizes = []int{20, 40, 80, 160}

func scaleNode(i int) string { return fmt.Sprintf("scale-%05d", i) }

// TestStorageCapacityScoring has the scheduler place 200 claims on nodes of different
// sizes. It prefers the node of which a claim takes the smallest part, in whole percent
// (feature gate StorageCapacityScoring), as the CSIStorageCapacity objects describe the
// nodes. If these are up to date, the claims fill the largest node to the level of the
// second, then both to the level of the third, and so on.
func TestStorageCapacityScoring(t *testing.T) {
	for _, c := range []struct {
		name  string
		batch int // so many claims at a time, then the capacity objects are awaited
		// how many volumes a node may have more or less than with exact objects
		off int
	}{
		{"in small batches", 10, 15},
		{"in one batch", 200, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := up(t, cluster.Options{
				Dir: "e2e-capacity", NoNodes: true,
				FeatureGates: map[string]bool{"StorageCapacityScoring": true},
				Flags: map[string][]string{
					// The nodes have no kubelet; their objects stay as they are.
					"kube-controller-manager": {"--controllers=*,-node-lifecycle-controller,-node-ipam-controller"},
				},
			})
			scene := &scene{suite: s, T: t, namespace: metav1.NamespaceDefault, timeout: timeout}
			scene.simulateNodes()
			begun := time.Now()
			for first := 0; first < 200; first += c.batch {
				for i := first; i < first+c.batch; i++ {
					name := fmt.Sprintf("claim-%d", i)
					scene.makeClaim(newClaim(name, "1Gi", inClass(scaleClass)))
					scene.makePod(newPod(name, idle, withClaim(name), tolerant))
				}
				scene.eventually(func() error { return scene.bound(first + c.batch) })
				scene.eventually(func() error { return scene.published(first + c.batch) })
			}
			have, want := scene.perNode(), []int{0, 13, 53, 134}
			t.Logf("nodes with room for %v volumes have %v after %v", scaleSizes, have, time.Since(begun).Round(time.Millisecond))
			for i := range want {
				if have[i] < want[i]-c.off || have[i] > min(want[i]+c.off, scaleSizes[i]) {
					t.Errorf("node %d has %d volumes, want %d (%d more or less)", i, have[i], want[i], c.off)
				}
			}
		})
	}
}

// tolerant lets a pod onto a node that is not ready, and has no token mounted.
func tolerant(spec *corev1.PodSpec) {
	no := false
	spec.AutomountServiceAccountToken = &no
	spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

// simulateNodes creates the objects of the nodes and runs the controllers of their driver.
func (c *scene) simulateNodes() {
	c.Helper()
	yes, no := true, false
	must(c)(c.api.StorageV1().CSIDrivers().Create(c.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: scaleDriver},
		Spec:       storagev1.CSIDriverSpec{StorageCapacity: &yes, AttachRequired: &no},
	}, metav1.CreateOptions{}))
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	must(c)(c.api.StorageV1().StorageClasses().Create(c.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: scaleClass}, Provisioner: scaleDriver, VolumeBindingMode: &mode,
	}, metav1.CreateOptions{}))
	var sizes []string
	for i, size := range scaleSizes {
		c.makeNode(scaleNode(i))
		sizes = append(sizes, fmt.Sprintf("%dGi", size))
	}
	c.start(c.TempDir(), "scale", filepath.Join(absolute(c.T, "../../.."), "bin/kubernetes/scale"),
		"-kubeconfig="+c.cluster.Kubeconfig, "-driver="+scaleDriver, "-namespace="+c.namespace, "-elect=false",
		"-node-objects-only=false", fmt.Sprintf("-nodes=%d", len(scaleSizes)), "-capacity="+strings.Join(sizes, ","))
	c.eventually(func() error { return c.published(0) })
}

// makeNode makes the objects of a node on which the kubelet has registered the driver.
// CPU and memory are so large that the pods make no difference to the scores for them.
func (c *scene) makeNode(name string) {
	c.Helper()
	resources := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100000"), corev1.ResourceMemory: resource.MustParse("1Pi"), corev1.ResourcePods: resource.MustParse("1000"),
	}
	node, err := c.api.CoreV1().Nodes().Create(c.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, scaleNodeKey: name}},
		Status:     corev1.NodeStatus{Capacity: resources, Allocatable: resources},
	}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	must(c)(c.api.StorageV1().CSINodes().Create(c.Context(), &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID,
		}}},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: scaleDriver, NodeID: name, TopologyKeys: []string{scaleNodeKey}}}},
	}, metav1.CreateOptions{}))
}

// published returns an error until the CSIStorageCapacity objects of all nodes include
// this many volumes.
func (c *scene) published(volumes int) error {
	list, err := c.api.StorageV1().CSIStorageCapacities(c.namespace).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	left := -volumes
	for _, size := range scaleSizes {
		left += size
	}
	want := resource.MustParse(fmt.Sprintf("%dGi", left))
	var have resource.Quantity
	for _, one := range list.Items {
		have.Add(*one.Capacity)
	}
	if len(list.Items) != len(scaleSizes) || have.Cmp(want) != 0 {
		return fmt.Errorf("%d CSIStorageCapacity objects have %s, want %d with %s", len(list.Items), &have, len(scaleSizes), &want)
	}
	return nil
}

// perNode counts the volumes of each node.
func (c *scene) perNode() []int {
	c.Helper()
	list, err := c.api.CoreV1().PersistentVolumes().List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	have := make([]int, len(scaleSizes))
	for _, pv := range list.Items {
		for i := range scaleSizes {
			if pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] == scaleNode(i) {
				have[i]++
			}
		}
	}
	return have
}
