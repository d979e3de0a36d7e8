package kube

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/internal/kube/rights"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// nodeLocal is a driver of which each node has an instance with its own storage.
func nodeLocal() *csidriver.Driver {
	driver := csidriver.New(driverName)
	driver.Plugin = append(driver.Plugin, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	driver.Controller = append(driver.Controller, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT)
	return driver
}

// machines are nodes that run the driver.
func machines(names ...string) (objects []runtime.Object) {
	for _, name := range names {
		objects = append(objects, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{csidriver.TopologyKey: name}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
				{Name: driverName, NodeID: name, TopologyKeys: []string{csidriver.TopologyKey}},
			}},
		})
	}
	return objects
}

// startNode starts the process of a node that watches its own objects.
func startNode(t *testing.T, c *apiserver.Cluster, node string, change ...func(*Options)) *process {
	t.Helper()
	return startNodeIn(t, c, c.NewEnv(), node, change...)
}

func startNodeIn(t *testing.T, c *apiserver.Cluster, env *cluster.Env, node string, change ...func(*Options)) *process {
	t.Helper()
	c.UseInstance(env, node)
	own := func(o *Options) {
		o.Clients, o.CSI, o.Node = env.Clients, env.CSI, node
		o.Tuning.NodeObjectsOnly, o.Tuning.ImmediateOnNodes = true, true
		o.Elect, o.Lease.Identity = true, node
	}
	return start(t, options(c, append([]func(*Options){own}, change...)...))
}

func late(class *storagev1.StorageClass) *storagev1.StorageClass {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	class.VolumeBindingMode = &mode
	return class
}

func selectedOn(pvc *corev1.PersistentVolumeClaim, node string) *corev1.PersistentVolumeClaim {
	pvc.Annotations[claim.SelectedNodeAnnotation] = node
	return pvc
}

// elected waits for the node whose process holds the lease.
func elected(t *testing.T, c *apiserver.Cluster) (node string) {
	t.Helper()
	eventually(t, func() error {
		held, err := c.Core.CoordinationV1().Leases(apiserver.Namespace).Get(c.Context(), lease.NodesName(driverName), metav1.GetOptions{})
		if err == nil && (held.Spec.HolderIdentity == nil || *held.Spec.HolderIdentity == "") {
			err = fmt.Errorf("the lease has no holder")
		}
		if err == nil {
			node = *held.Spec.HolderIdentity
		}
		return err
	})
	return node
}

// TestNodeObjects_reachTheirNodeOnly: the claims and volumes of one node are not in the
// caches of another's process.
func TestNodeObjects_reachTheirNodeOnly(t *testing.T) {
	c := apiserver.New(t, nodeLocal(), append(machines("n1", "n2"), late(newClass()))...)
	nodes := map[string]*process{"n1": startNode(t, c, "n1"), "n2": startNode(t, c, "n2")}
	for i := range 6 {
		c.Add(selectedOn(newClaim(fmt.Sprint("c", i)), fmt.Sprint("n", 1+i%2)))
	}
	for i := range 6 {
		eventually(t, func() error { _, err := volumeOf(c, fmt.Sprint("c", i)); return err })
	}
	for node, p := range nodes {
		set := p.env.Load().Set
		for _, pvc := range set.Claims().List() {
			if claim.SelectedNode(pvc) != node {
				t.Errorf("the process of %s has claim %s of %s", node, pvc.Name, claim.SelectedNode(pvc))
			}
		}
		eventually(t, func() error {
			if n := len(set.Volumes().List()); n != 3 {
				return fmt.Errorf("the process of %s has %d volumes, not its 3", node, n)
			}
			return nil
		})
	}
}

// TestNodeObjects_aStandbyListsNothingOfOtherNodes: only the elected process lists claims
// and volumes without a selector.
func TestNodeObjects_aStandbyListsNothingOfOtherNodes(t *testing.T) {
	c := apiserver.New(t, nodeLocal(), append(machines("n1", "n2", "n3"), newClass())...)
	var mu sync.Mutex
	unselected := map[string][]string{} // resources by process
	c.React("*", "*", func(q apiserver.Request) error {
		if (q.Verb == "list" || q.Verb == "watch") && !q.Selects() && q.Process != "" &&
			slices.Contains([]string{"persistentvolumeclaims", "persistentvolumes", "nodes", "csinodes", "volumesnapshots", "volumesnapshotcontents"}, q.Resource) {
			mu.Lock()
			defer mu.Unlock()
			unselected[q.Process] = append(unselected[q.Process], q.Resource)
		}
		return nil
	})
	for _, node := range []string{"n1", "n2", "n3"} {
		startNode(t, c, node).ready()
	}
	c.Add(newClaim("a"))
	eventually(t, func() error { _, err := volumeOf(c, "a"); return err })
	mu.Lock()
	defer mu.Unlock()
	if len(unselected) != 1 {
		t.Errorf("processes that list objects of all nodes: %v", unselected)
	}
}

// TestNodeObjects_theElectedProcessEnds: another one is elected, and serves what the first
// one left.
func TestNodeObjects_theElectedProcessEnds(t *testing.T) {
	c := apiserver.New(t, nodeLocal(), append(machines("n1", "n2"), newClass())...)
	nodes := map[string]*process{"n1": startNode(t, c, "n1"), "n2": startNode(t, c, "n2")}
	c.Add(newClaim("a"))
	eventually(t, func() error { _, err := volumeOf(c, "a"); return err })
	first := elected(t, c)
	nodes[first].stop()
	if err := nodes[first].end(); err != nil {
		t.Errorf("the process of %s ended with %v", first, err)
	}
	c.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: first, Labels: map[string]string{csidriver.TopologyKey: first}}}) // not ready
	c.Add(newClaim("b"))
	eventually(t, func() error { _, err := volumeOf(c, "b"); return err })
	if next := elected(t, c); next == first {
		t.Errorf("%s holds the lease still", next)
	}
}

// TestNodeObjects_theLossOfTheLeaseKeepsTheNode: the loss of the lease does not end a
// node's process, which may be elected again.
func TestNodeObjects_theLossOfTheLeaseKeepsTheNode(t *testing.T) {
	c := apiserver.New(t, nodeLocal(), append(machines("n1"), newClass())...)
	p := startNode(t, c, "n1")
	eventually(t, func() error { return heldBy(c, lease.NodesName(driverName), "n1") })
	eventually(t, func() error {
		if p.elected.Load() == nil {
			return fmt.Errorf("the process does not coordinate")
		}
		return nil
	})
	takeLease(t, c, "thief")
	eventually(t, func() error { // when the thief's lease has expired
		if p.elected.Load() == nil {
			return fmt.Errorf("the process does not coordinate again")
		}
		return heldBy(c, lease.NodesName(driverName), "n1")
	})
	c.Add(newClaim("a"))
	eventually(t, func() error { _, err := volumeOf(c, "a"); return err })
}

// takeLease makes another process the holder of the lease, for a second.
func takeLease(t *testing.T, c *apiserver.Cluster, holder string) {
	t.Helper()
	held, err := c.Core.CoordinationV1().Leases(apiserver.Namespace).Get(t.Context(), lease.NodesName(driverName), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	short := int32(1)
	held.Spec.HolderIdentity, held.Spec.LeaseDurationSeconds = &holder, &short
	*held.Spec.LeaseTransitions++
	c.Put(held)
}

// TestCaches_stayForTheirTimeAfterEachLoss: a process that loses the lease again and again, as
// one does whose API server is overloaded, keeps its caches for a minute after the last loss.
func TestCaches_stayForTheirTimeAfterEachLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept caches
		fills := 0
		take := func() {
			kept.take(t.Context(), lease.Tenure{UID: "lease"}, func() *cluster.Set { fills++; return &cluster.Set{} })
		}
		for range 3 {
			take()
			time.Sleep(keepCaches / 6)
			kept.leave(keepCaches)
			time.Sleep(keepCaches * 3 / 4)
			synctest.Wait()
		}
		if take(); fills != 1 {
			t.Errorf("the caches were filled %d times", fills)
		}
		kept.leave(keepCaches)
		time.Sleep(keepCaches + time.Second)
		synctest.Wait()
		if take(); fills != 2 {
			t.Errorf("the caches were filled %d times, want them to end after %v", fills, keepCaches)
		}
		kept.leave(0)
		synctest.Wait()
	})
}

// TestNodeObjects_cachesOutliveTheLossOfTheLease: a process that loses the lease for a moment
// changes nothing meanwhile, and does not list the cluster again unless another one has
// coordinated the nodes.
func TestNodeObjects_cachesOutliveTheLossOfTheLease(t *testing.T) {
	for name, row := range map[string]struct {
		another bool
		lists   int
	}{
		"for a moment":           {false, 1},
		"another process had it": {true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := apiserver.New(t, nodeLocal(), append(machines("n1"), newClass())...)
			var cut atomic.Bool
			var lists, patches atomic.Int64
			c.React("update", "leases", func(q apiserver.Request) error {
				if cut.Load() && q.Process != "" {
					return errTest
				}
				return nil
			})
			c.React("watch", "persistentvolumeclaims", func(q apiserver.Request) error { // each begins with the objects
				if q.Process != "" && !q.Selects() {
					lists.Add(1)
				}
				return nil
			})
			c.React("patch", "persistentvolumeclaims", func(apiserver.Request) error { patches.Add(1); return nil })
			p := startNode(t, c, "n1", func(o *Options) {
				o.Lease.Duration, o.Lease.RenewDeadline = 2*time.Second, time.Second
			})
			c.Add(newClaim("a"))
			eventually(t, func() error { _, err := volumeOf(c, "a"); return err })
			cut.Store(true)
			eventually(t, func() error {
				if p.elected.Load() != nil {
					return fmt.Errorf("the process coordinates without the lease")
				}
				return nil
			})
			before := patches.Load()
			c.Add(newClaim("b"))
			c.Never(100*time.Millisecond, func() error {
				if now := patches.Load(); now != before {
					return fmt.Errorf("a process that is not elected changes claims")
				}
				return nil
			})
			if row.another {
				takeLease(t, c, "other")
			}
			cut.Store(false)
			eventually(t, func() error { _, err := volumeOf(c, "b"); return err })
			if n := lists.Load(); n != int64(row.lists) {
				t.Errorf("the process watched the claims of all nodes anew %d times, want %d", n, row.lists)
			}
		})
	}
}

// TestNodeObjects_theElectedProcessIsStuck: the queues of the elected process count for the
// health of the node's process.
func TestNodeObjects_theElectedProcessIsStuck(t *testing.T) {
	c := apiserver.New(t, nodeLocal(), append(machines("n1"), newClass())...)
	release := make(chan struct{})
	answer := sync.OnceFunc(func() { close(release) })
	t.Cleanup(answer)
	c.React("patch", "persistentvolumeclaims", func(apiserver.Request) error { <-release; return nil })
	p := startNode(t, c, "n1")
	for i := range 20 {
		c.Add(newClaim(fmt.Sprint("c", i)))
	}
	eventually(t, func() error {
		if queue, since := p.Stuck(); queue != "coordinate-claims" || since <= 0 {
			return fmt.Errorf("queue %q is stuck for %v", queue, since)
		}
		return nil
	})
	answer()
	for i := range 20 {
		eventually(t, func() error { _, err := volumeOf(c, fmt.Sprint("c", i)); return err })
	}
}

// TestNodeObjects_ofAnEarlierVersion: claims and volumes lack the labels, and the process of
// one node is of the earlier version, which watches all objects and selects itself.
func TestNodeObjects_ofAnEarlierVersion(t *testing.T) {
	driver := nodeLocal()
	c := apiserver.New(t, driver, append(machines("n1", "n2"), newClass())...)
	earlier := func(o *Options) { o.Tuning.NodeObjectsOnly = false }
	old := startNode(t, c, "n1", earlier)
	c.Add(newClaim("a"))
	eventually(t, func() error { _, err := volumeOf(c, "a"); return err })
	pv, err := volumeOf(c, "a")
	if err != nil {
		t.Fatal(err)
	}
	pv.Labels = nil
	c.Put(pv)
	startNode(t, c, "n2")
	for i := range 8 {
		c.Add(newClaim(fmt.Sprint("c", i)))
	}
	for i := range 8 {
		eventually(t, func() error { _, err := volumeOf(c, fmt.Sprint("c", i)); return err })
	}
	if made := len(driver.Volumes()); made != 9 {
		t.Errorf("9 claims have %d volumes", made)
	}
	old.stop()
	if err := old.end(); err != nil {
		t.Errorf("the earlier version ended with %v", err)
	}
	startNode(t, c, "n1")
	eventually(t, func() error {
		labelled, err := volumeOf(c, "a")
		if err == nil && labelled.Labels[claim.NodeLabel] == "" {
			err = fmt.Errorf("the volume of the earlier version has no label")
		}
		return err
	})
	// The node of the volume sees it now, and deletes it.
	pv, err = volumeOf(c, "a")
	if err != nil {
		t.Fatal(err)
	}
	pv.Status.Phase = corev1.VolumeReleased
	c.Put(pv)
	eventually(t, func() error {
		if _, err := volumeOf(c, "a"); err == nil {
			return fmt.Errorf("the volume is not deleted")
		}
		return nil
	})
}

// TestNodeObjects_aVolumeIsKeptForAnObjectThatIsNotWatched: another PersistentVolume names a
// released volume. An administrator has just written it, and no process has labelled it yet; or
// several nodes can have the volume, and it is labelled for another one.
func TestNodeObjects_aVolumeIsKeptForAnObjectThatIsNotWatched(t *testing.T) {
	for name, row := range map[string]struct {
		labels map[string]string
		change func(*corev1.PersistentVolume)
	}{
		"without a label": {nil, func(*corev1.PersistentVolume) {}},
		"labelled for another node": {map[string]string{claim.NodeLabel: "n2"}, func(pv *corev1.PersistentVolume) {
			pv.Spec.NodeAffinity, pv.Labels = nil, map[string]string{claim.NodeLabel: claim.AnyNode}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			driver := nodeLocal()
			c := apiserver.New(t, driver, append(machines("n1"), late(newClass()), selectedOn(newClaim("a"), "n1"))...)
			c.React("patch", "persistentvolumes", func(q apiserver.Request) error {
				if q.Name == "kept" {
					return errTest // no process labels it
				}
				return nil
			})
			startNode(t, c, "n1")
			eventually(t, func() error { _, err := volumeOf(c, "a"); return err })
			pv, err := volumeOf(c, "a")
			if err != nil {
				t.Fatal(err)
			}
			row.change(pv)
			twin := pv.DeepCopy()
			twin.ObjectMeta, twin.Spec.ClaimRef = metav1.ObjectMeta{Name: "kept", Labels: row.labels}, nil
			c.Add(twin)
			pv.Status.Phase = corev1.VolumeReleased
			c.Put(pv)
			c.Never(100*time.Millisecond, func() error {
				if driver.Count("DeleteVolume") > 0 {
					return fmt.Errorf("the volume of another object is deleted")
				}
				return nil
			})
		})
	}
}

// TestNodeObjects_nextToACentralAttacher: a node's process is elected although a central
// process, which attaches the driver's volumes, holds its own lease.
func TestNodeObjects_nextToACentralAttacher(t *testing.T) {
	c := apiserver.New(t, nodeLocal(), append(machines("n1"), newClass())...)
	start(t, options(c, func(o *Options) { o.Elect, o.Wanted = true, []Role{rights.Attach} }))
	eventually(t, func() error { return heldBy(c, lease.Name(driverName), "me") })
	startNode(t, c, "n1")
	c.Add(newClaim("a"))
	eventually(t, func() error { _, err := volumeOf(c, "a"); return err })
}
