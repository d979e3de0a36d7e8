package capacity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/topology"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const driverName = "test.example.com"

// newDriver has 100 bytes in zone a, 200 in zone b; half of it in one volume.
func newDriver() *csidriver.Driver {
	d := csidriver.New(driverName)
	d.Plugin = append(d.Plugin, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
	d.Capacity.Of = func(r *csi.GetCapacityRequest) *csi.GetCapacityResponse {
		return map[string]*csi.GetCapacityResponse{"a": csidriver.Room(100, 50), "b": csidriver.Room(200, 100)}[r.GetAccessibleTopology().GetSegments()["zone"]]
	}
	return d
}

func node(name, zone string) *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.Labels = name, map[string]string{"zone": zone}
	return n
}

func csiNode(name string) *storagev1.CSINode {
	n := &storagev1.CSINode{}
	n.Name = name
	n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: driverName, NodeID: name, TopologyKeys: []string{"zone"}}}
	return n
}

func class(name string, parameters ...string) *storagev1.StorageClass {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	c := &storagev1.StorageClass{Provisioner: driverName, VolumeBindingMode: &mode, Parameters: map[string]string{}}
	c.Name = name
	for i := 0; i < len(parameters); i += 2 {
		c.Parameters[parameters[i]] = parameters[i+1]
	}
	return c
}

// object is a CSIStorageCapacity as external-provisioner leaves it.
func object(name, class, zone string, bytes int64) *storagev1.CSIStorageCapacity {
	o := &storagev1.CSIStorageCapacity{StorageClassName: class, NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}}
	o.Name, o.Namespace = name, apiserver.Namespace
	o.Labels = map[string]string{claim.CapacityDriverLabel: driverName, claim.CapacityManagerLabel: "external-provisioner"}
	o.Capacity = resource.NewQuantity(bytes, resource.BinarySI)
	return o
}

// world is two zones with three nodes.
func world(t *testing.T, driver *csidriver.Driver) *apiserver.Cluster {
	return apiserver.New(t, driver, node("n1", "a"), node("n2", "b"), node("n3", "b"), csiNode("n1"), csiNode("n2"), csiNode("n3"))
}

// fast makes a Controller with short pauses and, by default, a poll that never comes.
func fast(env *cluster.Env, o Options) *Controller {
	if o.Poll == 0 {
		o.Poll = time.Hour
	}
	c := New(env, topology.New(env, topology.Options{}), o)
	c.burst, c.gap, c.grace = time.Millisecond, 5*time.Millisecond, 20*time.Millisecond
	return c
}

func begin(c *apiserver.Cluster, o Options) (*Controller, func()) {
	controller := fast(c.Env, o)
	return controller, c.Run(c.Env, controller)
}

func listed(c *apiserver.Cluster) []storagev1.CSIStorageCapacity {
	list, err := c.Core.StorageV1().CSIStorageCapacities(apiserver.Namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		panic(err)
	}
	return list.Items
}

// said is what the objects say, sorted: "class zone=a 100/50".
func said(c *apiserver.Cluster) []string {
	var all []string
	for _, o := range listed(c) {
		text := o.StorageClassName + " " + claim.NewTerm(o.NodeTopology.MatchLabels).String() + " " + o.Capacity.String()
		if o.MaximumVolumeSize != nil {
			text += "/" + o.MaximumVolumeSize.String()
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}

func want(t *testing.T, c *apiserver.Cluster, objects ...string) {
	t.Helper()
	c.Eventually(func() error {
		if diff := cmp.Diff(objects, said(c)); diff != "" {
			return fmt.Errorf("objects: %s", diff)
		}
		return nil
	})
}

func writes(c *apiserver.Cluster, verb string) (n int) {
	for _, q := range c.Writes() {
		if q.Resource == "csistoragecapacities" && q.Verb == verb {
			n++
		}
	}
	return n
}

func TestCapacity_createsAnObjectForEachClassInEachSegment(t *testing.T) {
	c := world(t, newDriver())
	c.Add(class("one"), class("two"))
	begin(c, Options{})
	want(t, c, "one zone=a 100/50", "one zone=b 200/100", "two zone=a 100/50", "two zone=b 200/100")
	for _, o := range listed(c) {
		if !strings.HasPrefix(o.Name, "csisc-") || o.Labels["csi.storage.k8s.io/drivername"] != driverName || o.Labels["csi.storage.k8s.io/managed-by"] != "external-provisioner" {
			t.Errorf("%s has labels %v", o.Name, o.Labels)
		}
	}
}

func TestCapacity_classesWithEqualParametersShareACall(t *testing.T) {
	driver := newDriver()
	c := world(t, driver)
	c.Add(class("one", "type", "ssd", "csi.storage.k8s.io/fstype", "ext4"), class("two", "type", "ssd"), class("three", "type", "hdd"))
	begin(c, Options{})
	want(t, c, "one zone=a 100/50", "one zone=b 200/100", "three zone=a 100/50", "three zone=b 200/100", "two zone=a 100/50", "two zone=b 200/100")
	requests := driver.CapacityRequests()
	if len(requests) != 4 {
		t.Errorf("%d GetCapacity calls for two kinds of classes in two segments", len(requests))
	}
	for _, r := range requests {
		if _, leaked := r.GetParameters()["csi.storage.k8s.io/fstype"]; leaked || len(r.GetVolumeCapabilities()) > 0 || r.GetParameters()["type"] == "" {
			t.Errorf("asked %v", r)
		}
	}
}

func TestCapacity_immediateClassesOnlyOnDemand(t *testing.T) {
	immediate, unset, foreign := class("immediate"), class("unset"), class("foreign")
	mode := storagev1.VolumeBindingImmediate
	immediate.VolumeBindingMode, unset.VolumeBindingMode, foreign.Provisioner = &mode, nil, "other.example.com"
	for _, asked := range []bool{false, true} {
		c := world(t, newDriver())
		c.Add(immediate, unset, foreign)
		begin(c, Options{Immediate: asked})
		if asked {
			want(t, c, "immediate zone=a 100/50", "immediate zone=b 200/100", "unset zone=a 100/50", "unset zone=b 200/100")
		} else {
			want(t, c, "unset zone=a 100/50", "unset zone=b 200/100")
		}
	}
}

func TestCapacity_withoutTopologyOneObjectIsForAllNodes(t *testing.T) {
	driver := newDriver()
	driver.Capacity.Of = func(r *csi.GetCapacityRequest) *csi.GetCapacityResponse {
		if r.GetAccessibleTopology() != nil {
			t.Error("a topology was sent to a driver without")
		}
		return csidriver.Room(7, -1)
	}
	c := apiserver.New(t, driver, class("one"))
	controller := New(c.Env, topology.New(c.Env, topology.Options{Off: true}), Options{})
	c.Run(c.Env, controller)
	want(t, c, "one  7")
	if listed(c)[0].NodeTopology == nil {
		t.Error("NodeTopology is nil, which selects no node")
	}
}

func TestCapacity_adoptsObjectsOfExternalProvisioner(t *testing.T) {
	c := world(t, newDriver())
	right := object("csisc-right", "one", "a", 100)
	right.MaximumVolumeSize = resource.NewQuantity(50, resource.BinarySI)
	c.Add(class("one"), right, object("csisc-stale", "one", "b", 3), object("csisc-gone", "one", "z", 3), object("csisc-foreign", "another", "a", 3))
	begin(c, Options{})
	want(t, c, "one zone=a 100/50", "one zone=b 200/100")
	if n := writes(c, "create"); n != 0 {
		t.Errorf("%d objects were created in addition to the existing ones", n)
	}
	if n := writes(c, "update"); n != 1 {
		t.Errorf("%d updates for one stale object", n)
	}
}

func TestCapacity_leavesOtherManagersObjectsAlone(t *testing.T) {
	c := world(t, newDriver())
	other := object("csisc-other", "one", "z", 3)
	other.Labels[claim.CapacityManagerLabel] = claim.CapacityManager("n9")
	c.Add(class("one"), other)
	begin(c, Options{})
	want(t, c, "one zone=a 100/50", "one zone=b 200/100", "one zone=z 3")
	c.Never(60*time.Millisecond, func() error {
		if len(listed(c)) != 3 {
			return fmt.Errorf("objects: %v", said(c))
		}
		return nil
	})
}

func TestCapacity_duplicatesAreDeletedAndTheOldestStays(t *testing.T) {
	c := world(t, newDriver())
	old, young := object("csisc-z-old", "one", "a", 1), object("csisc-a-young", "one", "a", 1)
	old.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	young.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
	c.Add(class("one"), old, young)
	begin(c, Options{})
	want(t, c, "one zone=a 100/50", "one zone=b 200/100")
	if _, err := c.Core.StorageV1().CSIStorageCapacities(apiserver.Namespace).Get(t.Context(), "csisc-z-old", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	c.Add(object("csisc-later", "one", "b", 1))
	want(t, c, "one zone=a 100/50", "one zone=b 200/100")
}

func TestCapacity_recreatesDeletedObjects(t *testing.T) {
	c := world(t, newDriver())
	c.Add(class("one"))
	begin(c, Options{})
	want(t, c, "one zone=a 100/50", "one zone=b 200/100")
	gone := listed(c)[0]
	c.Delete(&gone)
	want(t, c, "one zone=a 100/50", "one zone=b 200/100")
}

func TestCapacity_followsClassesAndNodes(t *testing.T) {
	c := world(t, newDriver())
	c.Add(class("one"))
	begin(c, Options{})
	want(t, c, "one zone=a 100/50", "one zone=b 200/100")
	c.Add(class("two"))
	want(t, c, "one zone=a 100/50", "one zone=b 200/100", "two zone=a 100/50", "two zone=b 200/100")
	c.Delete(class("one"))
	want(t, c, "two zone=a 100/50", "two zone=b 200/100")
	c.Delete(node("n1", "a"))
	want(t, c, "two zone=b 200/100")
	c.Add(node("n1", "a"))
	want(t, c, "two zone=a 100/50", "two zone=b 200/100")
}

func TestCapacity_aReplacedClassIsPolledWithItsNewParameters(t *testing.T) {
	driver := newDriver()
	driver.Capacity.Of = func(r *csi.GetCapacityRequest) *csi.GetCapacityResponse {
		return csidriver.Room(map[string]int64{"ssd": 1, "hdd": 2}[r.GetParameters()["type"]], -1)
	}
	c := world(t, driver)
	c.Add(class("one", "type", "ssd"))
	begin(c, Options{})
	want(t, c, "one zone=a 1", "one zone=b 1")
	c.Put(class("one", "type", "hdd"))
	want(t, c, "one zone=a 2", "one zone=b 2")
	if n := writes(c, "create"); n != 2 {
		t.Errorf("%d objects were created for two segments", n)
	}
}

func TestCapacity_aRestartOfTheNodePluginKeepsTheObjects(t *testing.T) {
	c := world(t, newDriver())
	c.Add(class("one"))
	controller := fast(c.Env, Options{})
	controller.grace = time.Second
	c.Run(c.Env, controller)
	knows := func(there bool) {
		c.Eventually(func() error {
			if _, found := c.Env.Set.CSINodes().Get("n1"); found != there {
				return fmt.Errorf("node n1 is there: %v", found)
			}
			return nil
		})
	}
	for short := false; !short; { // repeats if the test itself was slow
		want(t, c, "one zone=a 100/50", "one zone=b 200/100")
		before, began := writes(c, "delete"), time.Now()
		c.Delete(csiNode("n1"))
		knows(false)
		time.Sleep(50 * time.Millisecond)
		c.Add(csiNode("n1"))
		knows(true)
		short = time.Since(began) < controller.grace/2
		time.Sleep(controller.grace + 100*time.Millisecond)
		if n := writes(c, "delete") - before; short && n != 0 {
			t.Errorf("%d objects were deleted", n)
		}
	}
	c.Delete(csiNode("n1"))
	want(t, c, "one zone=b 200/100")
}

func TestCapacity_pollsAndWritesOnlyWhatChanged(t *testing.T) {
	driver := newDriver()
	var bytes atomic.Int64
	bytes.Store(10)
	driver.Capacity.Of = func(*csi.GetCapacityRequest) *csi.GetCapacityResponse { return csidriver.Room(bytes.Load(), -1) }
	c := world(t, driver)
	c.Add(class("one"))
	controller, _ := begin(c, Options{Poll: 20 * time.Millisecond})
	want(t, c, "one zone=a 10", "one zone=b 10")
	longest := 0
	for polls := 0; polls < 20; {
		polls = driver.Count("GetCapacity") / 2
		longest = max(longest, controller.queue.Len())
		time.Sleep(time.Millisecond)
	}
	if n := writes(c, "update"); n != 0 {
		t.Errorf("%d updates, and nothing changed", n)
	}
	if longest > 3 {
		t.Errorf("%d keys waited for two questions and a plan", longest)
	}
	bytes.Store(20)
	want(t, c, "one zone=a 20", "one zone=b 20")
	if n := writes(c, "update"); n != 2 {
		t.Errorf("%d updates for two changes", n)
	}
}

func TestCapacity_anErrorOfTheDriverKeepsTheValues(t *testing.T) {
	driver := newDriver()
	c := world(t, driver)
	c.Add(class("one"))
	controller, _ := begin(c, Options{})
	want(t, c, "one zone=a 100/50", "one zone=b 200/100")
	before := driver.Count("GetCapacity")
	var failing atomic.Bool
	failing.Store(true)
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "GetCapacity" && failing.Load() {
			return csidriver.Fail(codes.Internal, "no idea")
		}
		return nil
	}
	controller.Failed("one")
	c.Eventually(func() error {
		if n := driver.Count("GetCapacity"); n < before+4 {
			return fmt.Errorf("%d calls", n-before)
		}
		return nil
	})
	want(t, c, "one zone=a 100/50", "one zone=b 200/100")
}

func TestCapacity_aNegativeSizeIsAnErrorOfTheDriver(t *testing.T) {
	driver := newDriver()
	for name, answer := range map[string]*csi.GetCapacityResponse{"available": csidriver.Room(-1, -1), "largest": csidriver.Room(5, -1)} {
		if name == "largest" {
			answer = csidriver.Room(5, 0)
			answer.MaximumVolumeSize.Value = -4
		}
		driver.Capacity.Of = func(*csi.GetCapacityRequest) *csi.GetCapacityResponse { return answer }
		c := world(t, driver)
		controller := fast(c.Env, Options{})
		if _, err := controller.room(t.Context(), &question{classes: []string{"one"}}); err == nil || !strings.Contains(err.Error(), "negative size") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCapacity_aDriverWithoutGetCapacityIsNotCalled(t *testing.T) {
	driver := newDriver()
	driver.Controller = slices.DeleteFunc(driver.Controller, func(kind csi.ControllerServiceCapability_RPC_Type) bool {
		return kind == csi.ControllerServiceCapability_RPC_GET_CAPACITY
	})
	c := world(t, driver)
	c.Add(class("one"), object("csisc-there", "one", "z", 3))
	controller, _ := begin(c, Options{})
	c.Eventually(func() error {
		controller.mu.Lock()
		defer controller.mu.Unlock()
		if !controller.off {
			return fmt.Errorf("still on")
		}
		return nil
	})
	controller.Failed("one")
	if n := driver.Count("GetCapacity"); n != 0 || len(c.Writes()) != 0 {
		t.Errorf("%d calls, %d writes", n, len(c.Writes()))
	}
}

func TestCapacity_failedWritesAreRetried(t *testing.T) {
	c := world(t, newDriver())
	c.Add(class("one"), object("csisc-stale", "one", "b", 3))
	var refusals atomic.Int32
	c.React("*", "csistoragecapacities", func(q apiserver.Request) error {
		if (q.Verb == "create" || q.Verb == "update") && refusals.Add(1) <= 6 {
			return apierrors.NewInternalError(fmt.Errorf("etcd is away"))
		}
		return nil
	})
	begin(c, Options{})
	want(t, c, "one zone=a 100/50", "one zone=b 200/100")
}

func TestCapacity_theObjectsOutliveTheProcess(t *testing.T) {
	driver := newDriver()
	c := world(t, driver)
	c.Add(class("one"))
	_, stop := begin(c, Options{})
	want(t, c, "one zone=a 100/50", "one zone=b 200/100")
	stop()
	want(t, c, "one zone=a 100/50", "one zone=b 200/100")
	created, calls := writes(c, "create"), driver.Count("GetCapacity")
	env := c.NewEnv()
	c.Run(env, fast(env, Options{}))
	c.Eventually(func() error {
		if driver.Count("GetCapacity") < calls+2 {
			return fmt.Errorf("the second process has not asked yet")
		}
		return nil
	})
	if writes(c, "create") != created || writes(c, "delete")+writes(c, "update") != 0 {
		t.Errorf("the second process changed %v", said(c))
	}
}

func TestCapacity_aNodeWritesItsOwnObjectsOnly(t *testing.T) {
	driver := newDriver()
	c := apiserver.New(t, driver, class("one"), node("n1", "a"), object("csisc-central", "one", "z", 3))
	c.Env.Scope = cluster.Scope{Node: "n1", Segments: map[string]string{"zone": "a"}}
	begin(c, Options{Owner: NodeOwner(c.Env)})
	want(t, c, "one zone=a 100/50", "one zone=z 3")
	for _, o := range listed(c) {
		if o.Name == "csisc-central" {
			continue
		}
		if o.Labels[claim.CapacityManagerLabel] != "external-provisioner-n1" {
			t.Errorf("labels %v", o.Labels)
		}
		if diff := cmp.Diff([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "uid-n1"}}, o.OwnerReferences); diff != "" {
			t.Error(diff)
		}
	}
}
