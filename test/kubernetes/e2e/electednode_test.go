package e2e

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-csi/holdfast/test/kubernetes/deployment"
)

// nodeLabel is the label by which a node's process selects its claims and volumes.
const nodeLabel = "holdfast.dev/node"

// selectSteps are the failpoints of the elected process while it selects a node, and those
// of the selected node until the claim has its volume.
var selectSteps = []string{
	"coordinate/select/before", "coordinate/select/after",
	"provision/create/intent", "provision/create/called", "provision/create/answered", "provision/create/saving", "provision/create/saved",
}

// makeImmediateClass makes a class with the namespace's name and immediate binding.
func (c *scene) makeImmediateClass() {
	c.Helper()
	c.makeStorageClass(deployment.LocalDriver, c.namespace, storagev1.VolumeBindingImmediate, nil)
}

// isLabelledForItsNode: a claim gets its label in the write that selects its node, late and
// with immediate binding, and a PersistentVolume at its creation. A node's process lists
// the claims of its node only.
func (c *scene) isLabelledForItsNode() {
	c.makeImmediateClass()
	for i, node := range c.cluster.Nodes {
		late, early := fmt.Sprint("late", i), fmt.Sprint("immediate", i)
		c.makeClaim(newClaim(late, "16Mi"))
		c.makeClaim(newClaim(early, "16Mi", inClass(c.namespace)))
		c.succeed(newPod(late, "true", withClaim(late), on(node)))
		c.succeed(newPod(early, "true", withClaim(early)))
		if got := c.labelled(late); got != node {
			c.Errorf("claim %s, used on node %s, is labelled for node %q", late, node, got)
		}
	}
	all := map[string]bool{}
	for _, node := range c.cluster.Nodes {
		list, err := c.api.CoreV1().PersistentVolumeClaims(c.namespace).List(c.Context(), metav1.ListOptions{LabelSelector: nodeLabel + "=" + node})
		if err != nil {
			c.Fatal(err)
		}
		for _, claim := range list.Items {
			all[claim.Name] = true
			if got := c.labelled(claim.Name); got != node {
				c.Errorf("the selection of node %s has claim %s of node %q", node, claim.Name, got)
			}
		}
	}
	if len(all) != 2*len(c.cluster.Nodes) {
		c.Errorf("the selections of all nodes have the claims %v", all)
	}
}

// labelled returns the label of a bound claim and its volume, "" if they differ or are not
// those of the volume's node.
func (c *scene) labelled(name string) string {
	c.Helper()
	claim, err := c.getClaim(name)
	if err != nil {
		c.Fatal(err)
	}
	pv := c.volumeObject(name)
	required := pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values
	if claim.Labels[nodeLabel] != pv.Labels[nodeLabel] || !slices.Equal(required, []string{pv.Labels[nodeLabel]}) {
		c.Errorf("claim %s has the labels %v, its volume %v on %v", name, claim.Labels, pv.Labels, required)
		return ""
	}
	return pv.Labels[nodeLabel]
}

func (c *scene) volumeObject(claim string) *corev1.PersistentVolume {
	c.Helper()
	pv, err := c.api.CoreV1().PersistentVolumes().Get(c.Context(), c.volumeOf(claim), metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return pv
}

// losesTheElectedProcess makes claims with immediate binding while the driver exits at
// each step of the selection and of the creation, and then while the elected pod is
// deleted. Each claim gets one volume.
func (c *scene) losesTheElectedProcess() {
	c.timeout = 5 * time.Minute
	c.makeImmediateClass()
	c.withFailpoints(once(selectSteps))
	made := 0
	add := func() {
		c.makeClaim(newClaim(fmt.Sprint("claim", made), "16Mi", inClass(c.namespace)))
		made++
	}
	c.eventually(func() error {
		missing := c.notPassed(selectSteps)
		if err := c.bound(made); err != nil || len(missing) == 0 {
			return err
		}
		add()
		return fmt.Errorf("with %d claims, no driver has died at %v", made, missing)
	})
	c.Logf("the drivers died at %v while %d claims were made", selectSteps, made)
	c.replaceElected(func() {
		for range 4 {
			add()
		}
	})
	c.eventually(func() error { return c.bound(made) })
	c.expectOneVolumeEach(made)
	if err := c.clear(c.Context()); err != nil {
		c.Fatal(err)
	}
	c.eventually(func() error { return c.empty(c.Context()) })
}

// notPassed returns the failpoints that no driver has reached, and so exited there.
func (c *scene) notPassed(points []string) []string {
	c.Helper()
	missing := slices.Clone(points)
	for _, node := range c.cluster.Nodes {
		passed, err := c.passed(node)
		if err != nil {
			c.Fatal(err)
		}
		missing = slices.DeleteFunc(missing, func(point string) bool { return slices.Contains(passed, point) })
	}
	return missing
}

// expectOneVolumeEach fails the test unless each claim has one volume, in the API and in the
// pools.
func (c *scene) expectOneVolumeEach(claims int) {
	c.Helper()
	volumes := c.volumes(c.Context())
	stored, err := c.stored(c.Context())
	if err != nil || len(volumes) != claims || len(stored) != claims {
		c.Errorf("%d claims have %d PersistentVolumes, and the pools %d volumes: %v, %v", claims, len(volumes), len(stored), stored, err)
	}
}

// electedPod waits for the pod that holds the lease of the release.
func (c *scene) electedPod() (name string) {
	c.Helper()
	c.eventually(func() error {
		list, err := c.api.CoordinationV1().Leases(c.deployment.Options.Namespace).List(c.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, lease := range list.Items {
			if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
				name, _, _ = strings.Cut(*holder, "_")
				return nil
			}
		}
		return errors.New("no process is elected")
	})
	return name
}

// replaceElected deletes the elected pod by force, and waits until another one is elected.
func (c *scene) replaceElected(meanwhile func()) {
	c.Helper()
	elected, zero := c.electedPod(), int64(0)
	if err := c.api.CoreV1().Pods(c.deployment.Options.Namespace).Delete(c.Context(), elected, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		c.Fatal(err)
	}
	begun := time.Now()
	meanwhile()
	c.eventually(func() error {
		if c.electedPod() == elected {
			return fmt.Errorf("pod %s, deleted by force, is elected still", elected)
		}
		return nil
	})
	c.Logf("%s is followed by %s after %v", elected, c.electedPod(), time.Since(begun).Round(time.Millisecond))
}

// labelsVolumesOnce: claims and volumes of a release whose nodes watch all objects, and the
// label was removed from, get it after an upgrade, and later terms write nothing.
func (c *scene) labelsVolumesOnce() {
	c.Cleanup(c.restoreDriver)
	c.upgrade("local.nodeObjectsOnly=false")
	names := []string{"first", "second"}
	for i, name := range names {
		c.makeClaim(newClaim(name, "16Mi"))
		c.succeed(newPod(name, writeFile("/"+name+"/file", "1m"), withClaim(name), on(c.cluster.Nodes[i])))
		if claim, err := c.getClaim(name); err != nil || claim.Labels[nodeLabel] != "" {
			c.Errorf("without node scope claim %s has the labels %v, %v", name, claim.Labels, err)
		}
		// As earlier releases create them.
		must(c)(c.kubectl(c.Context(), "label", "pv", c.volumeOf(name), nodeLabel+"-"))
	}
	c.upgrade()
	labelledFor := func(name, node string) error {
		claim, err := c.getClaim(name)
		if err != nil {
			return err
		}
		if pv := c.volumeObject(name); claim.Labels[nodeLabel] != node || pv.Labels[nodeLabel] != node {
			return fmt.Errorf("claim %s has the labels %v, its volume %v; want node %s", name, claim.Labels, pv.Labels, node)
		}
		return nil
	}
	versions := map[string]string{}
	for i, name := range names {
		c.eventually(func() error { return labelledFor(name, c.cluster.Nodes[i]) })
		claim, err := c.getClaim(name)
		if err != nil {
			c.Fatal(err)
		}
		versions[name] = claim.ResourceVersion + " " + c.volumeObject(name).ResourceVersion
	}
	elected := c.electedPod()
	must(c)(c.deployment.Kubectl(c.Context(), "delete", "pod", elected))
	c.makeImmediateClass()
	c.makeClaim(newClaim("later", "16Mi", inClass(c.namespace)))
	c.eventually(func() error { return c.bound(len(names) + 1) })
	for _, name := range names {
		claim, err := c.getClaim(name)
		if err != nil {
			c.Fatal(err)
		}
		if now := claim.ResourceVersion + " " + c.volumeObject(name).ResourceVersion; now != versions[name] {
			c.Errorf("claim and volume %s are written again: versions %s, then %s", name, versions[name], now)
		}
		c.succeed(newPod(name+"-reader", checkFile("/"+name+"/file"), withClaim(name)))
	}
}

// upgrade installs the release with values in addition to those of all tests.
func (c *scene) upgrade(values ...string) {
	c.Helper()
	values = append([]string{"node.updateStrategy.rollingUpdate.maxUnavailable=100%"}, append(values, chartValues...)...)
	if err := c.deployment.Upgrade(c.Context(), c.deployment.Options.Image, values...); err != nil {
		c.Fatal(err)
	}
}

// refusesObjectsOfOtherNodes sends requests with the token of a node's driver pod, as a
// node that is taken over can.
func (c *scene) refusesObjectsOfOtherNodes() {
	for i, node := range c.cluster.Nodes {
		name := fmt.Sprint("claim", i)
		c.makeClaim(newClaim(name, "16Mi"))
		c.succeed(newPod(name, "true", withClaim(name), on(node)))
	}
	c.expectRefusals(true)
}

// expectRefusals makes the requests of the second node's driver for claims and volumes of
// both nodes. coordinates is whether its process may be elected.
func (c *scene) expectRefusals(coordinates bool) {
	c.Helper()
	driver := c.asDriverOf(c.cluster.Nodes[1])
	foreign, own := c.volumeOf("claim0"), c.volumeOf("claim1")
	grow, mark, relabel := `{"spec":{"capacity":{"storage":"2Gi"}}}`, `{"metadata":{"annotations":{"a":"b"}}}`, `{"metadata":{"labels":{"holdfast.dev/node":""}}}`
	patchVolume := func(name, text string, options metav1.PatchOptions) error {
		_, err := driver.CoreV1().PersistentVolumes().Patch(c.Context(), name, types.MergePatchType, []byte(text), options)
		return err
	}
	patchClaim := func(name, text string, subresources ...string) error {
		_, err := driver.CoreV1().PersistentVolumeClaims(c.namespace).Patch(
			c.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
		return err
	}
	dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	for what, try := range map[string]struct {
		allowed bool
		err     error
	}{
		"grow the own volume":                      {true, patchVolume(own, grow, dry)},
		"report the size of the own claim":         {true, patchClaim("claim1", `{"status":{"capacity":{"storage":"2Gi"}}}`, "status")},
		"end the own selection":                    {true, patchClaim("claim1", `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":null}}}`)},
		"grow a volume of another node":            {false, patchVolume(foreign, grow, metav1.PatchOptions{})},
		"annotate a volume of another node":        {false, patchVolume(foreign, mark, metav1.PatchOptions{})},
		"delete a volume of another node":          {false, driver.CoreV1().PersistentVolumes().Delete(c.Context(), foreign, metav1.DeleteOptions{})},
		"annotate a claim of another node":         {false, patchClaim("claim0", mark)},
		"report the size of another node's claim":  {false, patchClaim("claim0", `{"status":{"capacity":{"storage":"2Gi"}}}`, "status")},
		"label a volume of another node":           {coordinates, patchVolume(foreign, relabel, dry)},
		"hide a volume from its node":              {false, patchVolume(foreign, `{"metadata":{"labels":{"holdfast.dev/node":"x"}}}`, dry)},
		"label a claim of another node":            {coordinates, patchClaim("claim0", relabel)},
		"take a claim of another node":             {false, patchClaim("claim0", fmt.Sprintf(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":%q}}}`, c.cluster.Nodes[1]))},
		"label and annotate another node's volume": {false, patchVolume(foreign, `{"metadata":{"labels":{"holdfast.dev/node":""},"annotations":{"a":"b"}}}`, metav1.PatchOptions{})},
	} {
		switch {
		case try.allowed && try.err != nil:
			c.Errorf("%s: %v", what, try.err)
		case !try.allowed && !apierrors.IsForbidden(try.err):
			c.Errorf("%s is not refused: %v", what, try.err)
		case !try.allowed && !strings.Contains(try.err.Error(), "ValidatingAdmissionPolicy"):
			c.Errorf("%s is refused for another reason: %v", what, try.err)
		}
	}
}

// asDriverOf returns a client with the token that the kubelet of a node has mounted into the
// driver's pod.
func (c *scene) asDriverOf(node string) kubernetes.Interface {
	c.Helper()
	list, err := c.api.CoreV1().Pods(c.deployment.Options.Namespace).List(c.Context(), metav1.ListOptions{
		LabelSelector: c.deployment.Selector() + ",app.kubernetes.io/component=node", FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil || len(list.Items) != 1 {
		c.Fatalf("node %s has %d pods of the driver, %v", node, len(list.Items), err)
	}
	var token string
	for _, volume := range list.Items[0].Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		file := path.Join("/var/lib/kubelet/pods", string(list.Items[0].UID), "volumes/kubernetes.io~projected", volume.Name, "token")
		if token, err = c.cluster.OnNode(c.Context(), node, "cat", file); err != nil {
			c.Fatal(err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.cluster.Kubeconfig)
	if err != nil {
		c.Fatal(err)
	}
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = strings.TrimSpace(token)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.Fatal(err)
	}
	return client
}

// isCoordinatedByADeployment: the coordinator is a Deployment, whose pods are deleted while
// claims are made, and the nodes' account may not do its work.
func (c *scene) isCoordinatedByADeployment() {
	c.timeout = 5 * time.Minute
	c.Cleanup(c.restoreDriver)
	c.upgrade("local.coordinator.enabled=true", "controller.replicas=2")
	c.makeImmediateClass()
	for i, node := range c.cluster.Nodes {
		name := fmt.Sprint("claim", i)
		c.makeClaim(newClaim(name, "16Mi"))
		c.succeed(newPod(name, "true", withClaim(name), on(node)))
	}
	c.expectRefusals(false)
	// The upgrade takes the right to the Lease from the nodes' account before it stops their
	// pods: the elected one cannot release the Lease, and it expires.
	c.eventually(c.expectElectedController)
	made := len(c.cluster.Nodes)
	for range 3 {
		if err := c.expectElectedController(); err != nil {
			c.Fatal(err)
		}
		add := func() {
			c.makeClaim(newClaim(fmt.Sprint("claim", made), "16Mi", inClass(c.namespace)))
			made++
		}
		add()
		c.replaceElected(add)
		c.eventually(func() error { return c.bound(made) })
	}
	c.expectOneVolumeEach(made)
	for i := range made {
		if got := c.labelled(fmt.Sprint("claim", i)); got == "" {
			c.Errorf("claim%d has no label", i)
		}
	}
	if err := c.clear(c.Context()); err != nil {
		c.Fatal(err)
	}
	c.eventually(func() error { return c.empty(c.Context()) })
}

// expectElectedController returns an error unless a pod of the Deployment is elected.
func (c *scene) expectElectedController() error {
	if elected := c.electedPod(); !strings.Contains(elected, "-controller-") {
		return fmt.Errorf("pod %s is elected", elected)
	}
	return nil
}
