package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/test/kubernetes/deployment"
)

// selectedNode is the annotation that has the node for which a volume is created.
const selectedNode = "volume.kubernetes.io/selected-node"

// isRestoredWhereTheSnapshotIs restores a snapshot whose volume was deleted, so that only
// the snapshot's topology names the node.
func isRestoredWhereTheSnapshotIs(c *scene) {
	node, other := c.cluster.Nodes[1], c.cluster.Nodes[0]
	c.makeClaim(newClaim("data", "64Mi"))
	c.run(newPod("writer", writeFile("/data/file", "8m")+" && "+idle, withClaim("data"), on(node)))
	c.waitWritten("writer", "/data/file.sum")
	c.exec("writer", "sync")
	c.makeSnapshot("then", "data")
	c.waitSnapshot("then")
	if terms := c.snapshotTerms("then"); !strings.Contains(terms, `"`+node+`"`) || strings.Contains(terms, `"`+other+`"`) {
		c.Errorf("the snapshot can be restored in %q, want %s alone", terms, node)
	}
	volume := c.volumeOf("data")
	c.removePod("writer")
	if _, err := c.kubectl(c.Context(), "delete", "pvc", "data"); err != nil {
		c.Fatal(err)
	}
	c.waitVolumeGone(volume)

	selections := c.recordSelections()
	c.makeStorageClass(deployment.LocalDriver, c.namespace, storagev1.VolumeBindingImmediate, nil)
	c.makeClaim(newClaim("now", "64Mi", inClass(c.namespace), fromSnapshot("then")))
	c.eventually(func() error { return c.bound(1) })
	if got := selections("now"); !slices.Equal(got, []string{"", node}) {
		c.Errorf("the nodes that were selected for a claim with immediate binding are %q, want %s once", got, node)
	}
	c.makeClaim(newClaim("later", "64Mi", fromSnapshot("then")))
	for _, claim := range []string{"now", "later"} {
		if got := c.run(newPod("reader-"+claim, idle, withClaim(claim))); got != node {
			c.Errorf("the pod with claim %s is on %s, its snapshot on %s", claim, got, node)
		}
		c.exec("reader-"+claim, checkFile("/"+claim+"/file"))
	}
	got := selections("later")
	if got[len(got)-1] != node {
		c.Errorf("the nodes that were selected for a claim that waits for its pod are %q, want %s at last", got, node)
	}
	c.Logf("the nodes that were selected for a claim that waits for its pod: %q", got)

	// A pod that cannot run there: the claim says where the snapshot is.
	c.makeClaim(newClaim("misplaced", "64Mi", fromSnapshot("then")))
	c.makePod(newPod("reader-misplaced", idle, withClaim("misplaced"), on(other)))
	c.waitEvent("misplaced", "ProvisioningFailed", fmt.Sprintf("is on another node than %q", other))
}

// snapshotTerms returns the topologies from which a snapshot can be restored, as its
// content has them.
func (c *scene) snapshotTerms(name string) string {
	c.Helper()
	snapshot, err := c.snapshots.SnapshotV1().VolumeSnapshots(c.namespace).Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	content, err := c.snapshots.SnapshotV1().VolumeSnapshotContents().
		Get(c.Context(), *snapshot.Status.BoundVolumeSnapshotContentName, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return content.Annotations["holdfast.dev/node-affinity"]
}

// recordSelections records the changes of the selected node of all later claims of the
// namespace, until the test ends.
func (c *scene) recordSelections() (of func(claim string) []string) {
	c.Helper()
	changes, err := c.api.CoreV1().PersistentVolumeClaims(c.namespace).Watch(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	var mu sync.Mutex
	seen, versions := map[string][]string{}, map[string]string{}
	go func() {
		for event := range changes.ResultChan() {
			claim, ok := event.Object.(*corev1.PersistentVolumeClaim)
			if !ok || event.Type == watch.Deleted {
				continue
			}
			mu.Lock()
			versions[claim.Name] = claim.ResourceVersion
			if known, node := seen[claim.Name], claim.Annotations[selectedNode]; len(known) == 0 || known[len(known)-1] != node {
				seen[claim.Name] = append(known, node)
			}
			mu.Unlock()
		}
	}()
	c.Cleanup(changes.Stop)
	return func(name string) []string {
		c.Helper()
		var nodes []string
		c.eventually(func() error {
			claim, err := c.getClaim(name)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if nodes = slices.Clone(seen[name]); versions[name] != claim.ResourceVersion {
				return errors.New("the watch is behind")
			}
			return nil
		})
		return nodes
	}
}
