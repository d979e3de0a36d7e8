package coordinate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

func twoNodes(more ...runtime.Object) []runtime.Object {
	return slices.Concat(machine("n1"), machine("n2"), []runtime.Object{newClass("fast")}, more)
}

func labelledAs(node string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) { pv.Labels = map[string]string{claim.NodeLabel: node} }
}

func TestLabels_ofVolumes(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*corev1.PersistentVolume)
		want   string
	}{
		"of one node":                   {at(hostKey, "n1"), "n1"},
		"of two nodes":                  {at(hostKey, "n1", "n2"), claim.AnyNode},
		"of a zone":                     {at(zoneKey, "z"), claim.AnyNode},
		"without affinity":              {func(*corev1.PersistentVolume) {}, claim.AnyNode},
		"of a node that is gone":        {at(hostKey, "gone"), "-"},
		"with a wrong label":            {func(pv *corev1.PersistentVolume) { at(hostKey, "n1")(pv); labelledAs("n2")(pv) }, "n1"},
		"of a zone, labelled for one":   {func(pv *corev1.PersistentVolume) { at(zoneKey, "z")(pv); labelledAs("n2")(pv) }, "n2"},
		"of a gone node, with a label":  {func(pv *corev1.PersistentVolume) { at(hostKey, "gone")(pv); labelledAs("gone")(pv) }, "gone"},
		"of one node, created without":  {func(pv *corev1.PersistentVolume) { at(hostKey, "n1")(pv); labelledAs(claim.UnknownNode)(pv) }, "n1"},
		"of a zone, created without":    {func(pv *corev1.PersistentVolume) { at(zoneKey, "z")(pv); labelledAs(claim.UnknownNode)(pv) }, claim.AnyNode},
		"of a gone node, without":       {func(pv *corev1.PersistentVolume) { at(hostKey, "gone")(pv); labelledAs(claim.UnknownNode)(pv) }, claim.UnknownNode},
		"of another driver":             {func(pv *corev1.PersistentVolume) { at(hostKey, "n1")(pv); pv.Spec.CSI.Driver = "other" }, "-"},
		"of one node, asked by drivers": {func(pv *corev1.PersistentVolume) { at(hostKey, "n1")(pv); labelledAs(claim.AnyNode)(pv) }, claim.AnyNode},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, twoNodes(newVolume("a", row.change), newVolume("last", at(hostKey, "n1")))...)
			w.run()
			label(w, w.Core.CoreV1().PersistentVolumes().Get, "pv-last", claim.NodeLabel, "n1")
			label(w, w.Core.CoreV1().PersistentVolumes().Get, "pv-a", claim.NodeLabel, row.want)
		})
	}
}

func TestLabels_ofAVolumeWhoseNodeStartsLater(t *testing.T) {
	w := newWorld(t, newVolume("a", at(hostKey, "n3")))
	w.run()
	w.Add(machine("n3")...)
	label(w, w.Core.CoreV1().PersistentVolumes().Get, "pv-a", claim.NodeLabel, "n3")
}

// TestLabels_stayWhileTheDriverRestarts: a volume of a zone is labelled for another node only
// after the limit, or once its node is gone.
func TestLabels_stayWhileTheDriverRestarts(t *testing.T) {
	unregister := func(w *world) { w.Put(registered("n1", "other")) }
	for name, row := range map[string]struct {
		limit time.Duration
		lose  func(*world)
		want  string
	}{
		"a restart":               {time.Hour, unregister, "n1"},
		"a driver that is gone":   {time.Millisecond, unregister, "n2"},
		"a node that is gone":     {time.Hour, func(w *world) { w.Delete(machine("n1")[0]) }, "n2"},
		"a node of another zone":  {time.Hour, func(w *world) { w.Put(machine("n1", func(n *corev1.Node) { n.Labels[zoneKey] = "y" })...) }, "n2"},
		"a limit after a restart": {20 * time.Millisecond, func(w *world) { unregister(w); w.Put(registered("n1", driverName)); unregister(w) }, "n2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, twoNodes(newVolume("a", at(zoneKey, "z"), labelledAs("n1")))...)
			controller, _ := w.controller(func(_ *cluster.Env, o *Options) { o.LostAfter = row.limit })
			row.lose(w)
			w.Eventually(func() error {
				if n := len(controller.nodes.matching(newVolume("a", at(zoneKey, "z")).Spec.NodeAffinity)); n != 1 {
					return fmt.Errorf("%d nodes have the volume", n)
				}
				return nil
			})
			if row.want == "n1" {
				w.Never(50*time.Millisecond, func() error {
					pv, err := w.Core.CoreV1().PersistentVolumes().Get(w.Context(), "pv-a", metav1.GetOptions{})
					if err == nil && pv.Labels[claim.NodeLabel] != "n1" {
						err = fmt.Errorf("the volume is labelled %q", pv.Labels[claim.NodeLabel])
					}
					return err
				})
			}
			label(w, w.Core.CoreV1().PersistentVolumes().Get, "pv-a", claim.NodeLabel, row.want)
		})
	}
}

// TestLabels_ofTwinsOfAZone: the node of each would delete the volume of the other.
func TestLabels_ofTwinsOfAZone(t *testing.T) {
	twin := newVolume("b", at(zoneKey, "z"), labelledAs("n2"))
	twin.Spec.CSI.VolumeHandle = "h-a"
	w := newWorld(t, twoNodes(newVolume("a", at(zoneKey, "z"), labelledAs("n1")), twin)...)
	w.run()
	w.Eventually(func() error {
		values := map[string]int{}
		for _, name := range []string{"pv-a", "pv-b"} {
			pv, err := w.Core.CoreV1().PersistentVolumes().Get(w.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			values[pv.Labels[claim.NodeLabel]]++
		}
		if values[claim.AnyNode] == 0 {
			return fmt.Errorf("the labels are %v", values)
		}
		return nil
	})
}

// TestLabels_keepALabelOfTheSameTime: a user labels a volume that had no label when it was
// read.
func TestLabels_keepALabelOfTheSameTime(t *testing.T) {
	w := newWorld(t, twoNodes(newVolume("a", at(hostKey, "n1")))...)
	var once sync.Once
	w.React("patch", "persistentvolumes", func(apiserver.Request) error {
		once.Do(func() {
			w.Put(newVolume("a", at(hostKey, "n1"), func(pv *corev1.PersistentVolume) { pv.Labels = map[string]string{"team": "a"} }))
		})
		return nil
	})
	w.run()
	label(w, w.Core.CoreV1().PersistentVolumes().Get, "pv-a", claim.NodeLabel, "n1")
	label(w, w.Core.CoreV1().PersistentVolumes().Get, "pv-a", "team", "a")
}

// TestLabels_nodesQueueVolumesOfTheDriverAlone: in a cluster with many volumes of other
// drivers, each change of a node would queue all of them.
func TestLabels_nodesQueueVolumesOfTheDriverAlone(t *testing.T) {
	w := newWorld(t, twoNodes(newVolume("a", at(hostKey, "gone")), newVolume("b", ofDriver("other")))...)
	env := w.NewEnv()
	c := New(env, Options{})
	w.Run(env, c)
	if found := c.volumes.By(c.volumesByLabel(), wakeKey); len(found) != 1 || found[0].Name != "pv-a" {
		t.Errorf("%d volumes are queued", len(found))
	}
}

func TestLabels_ofClaims(t *testing.T) {
	long := strings.Repeat("long-name.", 9) + "example"
	for name, row := range map[string]struct {
		objects []runtime.Object
		want    string
	}{
		"selected":                          {[]runtime.Object{newClaim("a", onNode("n1"))}, "n1"},
		"selected, a long name":             {append(machine(long), newClaim("a", onNode(long))), claim.NodeLabelValue(long)},
		"bound":                             {[]runtime.Object{newClaim("a", bound), newVolume("a", at(hostKey, "n2"))}, "n2"},
		"bound elsewhere than selected":     {[]runtime.Object{newClaim("a", onNode("n1"), bound), newVolume("a", at(hostKey, "n2"))}, "n2"},
		"bound to another driver's volume":  {[]runtime.Object{newClaim("a", onNode("n1"), bound), newVolume("a", at(hostKey, "n2"), ofDriver("other"))}, "-"},
		"bound to a volume without a node":  {[]runtime.Object{newClaim("a", bound), newVolume("a")}, claim.AnyNode},
		"static":                            {[]runtime.Object{newClaim("a", bound, another), newVolume("a", at(hostKey, "n2"))}, "n2"},
		"of another driver":                 {[]runtime.Object{newClaim("a", onNode("n1"), another)}, "-"},
		"late binding, not selected":        {[]runtime.Object{newClass("late", waitForConsumer), newClaim("a", ofClass("late"))}, "-"},
		"of a class that does not exist":    {[]runtime.Object{newClaim("a", ofClass("none"))}, "-"},
		"selected, with the policy's label": {[]runtime.Object{newClaim("a", onNode("n1"), func(pvc *corev1.PersistentVolumeClaim) { pvc.Labels = map[string]string{claim.NodeLabel: "n1"} })}, "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, twoNodes(append(row.objects, newClaim("last", onNode("n1")))...)...)
			w.run()
			get := w.Core.CoreV1().PersistentVolumeClaims("ns").Get
			label(w, get, "last", claim.NodeLabel, "n1")
			label(w, get, "a", claim.NodeLabel, row.want)
		})
	}
}

func ofDriver(name string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = name }
}

func another(pvc *corev1.PersistentVolumeClaim) {
	pvc.Annotations[claim.ProvisionerAnnotation] = "other"
}

func TestLabels_ofContents(t *testing.T) {
	managed := func(node string) func(*snapshotv1.VolumeSnapshotContent) {
		return func(content *snapshotv1.VolumeSnapshotContent) {
			content.Labels = map[string]string{claim.ManagedByLabel: node}
		}
	}
	for name, row := range map[string]struct {
		change func(*snapshotv1.VolumeSnapshotContent)
		want   string
	}{
		"by its volume":              {func(*snapshotv1.VolumeSnapshotContent) {}, "n1"},
		"labelled at its creation":   {managed("n2"), "n2"},
		"asked, and the volume came": {managed(claim.AnyNode), "n1"},
		"static": {func(content *snapshotv1.VolumeSnapshotContent) {
			content.Spec.Source = snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: content.Spec.Source.VolumeHandle}
		}, claim.AnyNode},
		"of another driver": {func(content *snapshotv1.VolumeSnapshotContent) { content.Spec.Driver = "other" }, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, twoNodes(append(newSnapshot("a", row.change), newVolume("a", at(hostKey, "n1")))...)...)
			w.Add(append(newSnapshot("last"), newVolume("last", at(hostKey, "n1")))...)
			w.run()
			get := w.Snapshots.SnapshotV1().VolumeSnapshotContents().Get
			label(w, get, "content-last", claim.ManagedByLabel, "n1")
			label(w, get, "content-a", claim.ManagedByLabel, row.want)
		})
	}
}

func TestSelect_theNodeWithTheMostRoom(t *testing.T) {
	w := newWorld(t, twoNodes(room("fast", "n1", 3<<30), room("fast", "n2", 5<<30))...)
	w.run()
	for i := range 8 { // together they need what both nodes have
		w.Add(newClaim(fmt.Sprint("c", i)))
	}
	on := map[string]int{}
	for i := range 8 {
		w.selected(fmt.Sprint("c", i), "n1", "n2")
		on[claim.SelectedNode(w.claim(fmt.Sprint("c", i)))]++
	}
	if on["n1"] != 3 || on["n2"] != 5 {
		t.Errorf("claims by node: %v", on)
	}
	w.Add(newClaim("more"))
	w.event("ns/more", "none of the 2 nodes that run driver d.example has room for 1073741824 bytes")
	w.Put(room("fast", "n1", 9<<30))
	w.selected("more", "n1")
}

func TestSelect_onlyNodesThatServe(t *testing.T) {
	nodes := slices.Concat(machine("cordoned", cordoned), machine("down", notReady), machine("other-class"), machine("n1"), machine("n2"))
	w := newWorld(t, append(nodes, newClass("fast"), newClass("only", allowed("n2")), newClass("nowhere", allowed("n9")),
		room("fast", "n1", 1<<40), room("fast", "other-class", 1), room("only", "n2", 1<<40), room("fast", "down", 1<<50), room("fast", "cordoned", 1<<50))...)
	w.Put(registered("other-class", "other"))
	w.run()
	w.Add(newClaim("a"), newClaim("b", ofClass("only")), newClaim("c", ofClass("nowhere")), newClaim("d", ofClass("none")))
	w.selected("a", "n1")
	w.selected("b", "n2")
	w.event("ns/c", `no node that StorageClass "nowhere" allows runs driver d.example`)
	w.event("ns/d", `storageclass.storage.k8s.io "none" not found`)
}

// TestSelect_withoutCapacityTheClaimsSpread: the driver lacks GET_CAPACITY.
func TestSelect_withoutCapacityTheClaimsSpread(t *testing.T) {
	w := newWorld(t, twoNodes()...)
	w.run()
	for i := range 10 {
		w.Add(newClaim(fmt.Sprint("c", i)))
	}
	on := map[string]int{}
	for i := range 10 {
		w.selected(fmt.Sprint("c", i), "n1", "n2")
		on[claim.SelectedNode(w.claim(fmt.Sprint("c", i)))]++
	}
	if on["n1"] != 5 || on["n2"] != 5 {
		t.Errorf("claims by node: %v", on)
	}
}

func TestSelect_anotherNodeAfterOneRemovedItself(t *testing.T) {
	w := newWorld(t, twoNodes(room("fast", "n1", 9<<30), room("fast", "n2", 5<<30))...)
	w.run()
	w.Add(newClaim("a"))
	w.selected("a", "n1")
	w.Put(newClaim("a")) // the node's process had no room after all
	w.selected("a", "n2")
	w.Put(newClaim("a"))
	w.event("ns/a", "none of the 2 nodes")
}

func TestSelect_leavesLateBindingToTheScheduler(t *testing.T) {
	w := newWorld(t, twoNodes(newClass("late", waitForConsumer))...)
	w.run(func(_ *cluster.Env, o *Options) {
		o.Refusals = refusing("late")
	})
	w.Add(newClaim("a", ofClass("late"), func(pvc *corev1.PersistentVolumeClaim) { pvc.Annotations = nil }), newClaim("b"))
	w.selected("b", "n1", "n2")
	w.selected("a", "")
	w.event("ns/a", `rejects the class: no such tier`)
}

// TestSelect_aRefusalWakesTheClaimsOfItsClass: a class and its claims come together, and the
// driver is asked about the class after the claims were processed.
func TestSelect_aRefusalWakesTheClaimsOfItsClass(t *testing.T) {
	w := newWorld(t, twoNodes(newClass("late", waitForConsumer))...)
	driver, begun := refusing(), time.Now()
	w.run(func(_ *cluster.Env, o *Options) { o.Refusals = driver })
	w.Add(newClaim("a", ofClass("late"), func(pvc *corev1.PersistentVolumeClaim) { pvc.Annotations = nil }), newClaim("b"))
	w.selected("b", "n1", "n2")
	driver.refuse("late")
	w.event("ns/a", `rejects the class: no such tier`)
	if waited := time.Since(begun); waited >= recheckPeriod {
		t.Errorf("event after %v: the claim was only checked again", waited)
	}
}

// refusals are the classes that a driver rejects.
type refusals struct {
	mu      sync.Mutex
	classes []string
	call    func(class string)
}

func refusing(classes ...string) *refusals { return &refusals{classes: classes} }

func (r *refusals) Refused(class string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return "no such tier", slices.Contains(r.classes, class)
}

func (r *refusals) OnRefusal(call func(class string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.call = call
}

func (r *refusals) refuse(class string) {
	r.mu.Lock()
	r.classes = append(r.classes, class)
	call := r.call
	r.mu.Unlock()
	call(class)
}

// TestSelect_withoutADriverTheEventNamesNoReason: a coordinator calls no driver.
func TestSelect_withoutADriverTheEventNamesNoReason(t *testing.T) {
	late := func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Annotations, pvc.CreationTimestamp = nil, metav1.NewTime(time.Now().Add(-time.Hour))
	}
	for name, row := range map[string]struct {
		rooms []runtime.Object
		event bool
	}{
		"room for another class":   {[]runtime.Object{room("fast", "n1", 1<<30)}, true},
		"no room for the class":    {[]runtime.Object{room("fast", "n1", 1<<30), room("late", "n1", 0)}, false},
		"a driver without numbers": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, twoNodes(append(row.rooms, newClass("late", waitForConsumer))...)...)
			w.run()
			w.Add(newClaim("a", ofClass("late"), late), newClaim("last", ofClass("none")))
			w.event("ns/last", "not found")
			if !row.event {
				for _, event := range w.Events() {
					if strings.Contains(event, "ns/a") {
						t.Errorf("event %s", event)
					}
				}
				return
			}
			w.event("ns/a", `no node reports room for the class; driver d.example may reject its parameters`)
		})
	}
}

func TestSelection_endsWithItsNode(t *testing.T) {
	for name, row := range map[string]struct {
		class string
		node  string
		want  string
	}{
		"late binding, the node does not exist":        {"late", "gone", ""},
		"immediate binding, the node does not exist":   {"fast", "gone", "n1"},
		"late binding, not a node's name":              {"late", "not/a node's name", ""},
		"late binding, the node is down":               {"late", "down", "down"},
		"immediate binding, the node is down":          {"fast", "down", "n1"},
		"immediate binding, without the driver":        {"fast", "bare", "n1"},
		"immediate binding, cordoned after it was new": {"fast", "cordoned", "cordoned"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := slices.Concat(machine("n1"), machine("down", notReady), machine("cordoned", cordoned), machine("bare"),
				[]runtime.Object{newClass("fast"), newClass("late", waitForConsumer)})
			w := newWorld(t, objects...)
			w.Put(registered("bare", "other"))
			w.run()
			w.Add(newClaim("a", ofClass(row.class), onNode(row.node)), newClaim("last"))
			w.selected("last", "n1")
			w.selected("a", row.want)
		})
	}
}

func TestSelection_staysIfThereIsAVolume(t *testing.T) {
	w := newWorld(t, twoNodes(newClaim("a", onNode("gone")), newVolume("a", at(hostKey, "gone")))...)
	w.run()
	w.Add(newClaim("last"))
	w.selected("last", "n1", "n2")
	w.selected("a", "gone")
}

func TestSelect_theNodeOfTheSource(t *testing.T) {
	for name, row := range map[string]struct {
		copied func(*corev1.PersistentVolumeClaim)
		class  string
	}{
		"a clone, immediate binding":   {cloneOf("src"), "fast"},
		"a clone, late binding":        {cloneOf("src"), "late"},
		"a restore, immediate binding": {restoreOf("snap"), "fast"},
		"a restore, late binding":      {restoreOf("snap"), "late"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, twoNodes(newClass("late", waitForConsumer), newClaim("a", row.copied, ofClass(row.class)))...)
			w.run()
			w.event("ns/a", "the source, ", "does not exist")
			w.Add(newClaim("src", bound), newVolume("src", at(hostKey, "n2")))
			w.Add(append(newSnapshot("snap"), newVolume("snap", at(hostKey, "n2")))...)
			w.selected("a", "n2")
			w.Put(newClaim("a", row.copied, ofClass(row.class))) // the node is full
			w.Never(50*time.Millisecond, func() error {
				if node := claim.SelectedNode(w.claim("a")); node != "" {
					return fmt.Errorf("node %q is selected again at once", node)
				}
				return nil
			})
		})
	}
}

// TestSelect_beforeTheRemovalIsHandled: the cache shows that a node has removed its
// selection before the handlers of that change run, or those of the selection, and another
// change queues the claim.
func TestSelect_beforeTheRemovalIsHandled(t *testing.T) {
	for name, row := range map[string]struct{ selection, removal bool }{
		"the removal is not handled":                           {removal: true},
		"the selection is handled after the removal is cached": {selection: true, removal: true},
		"neither the selection nor the removal are handled":    {selection: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			selection, removal := make(chan struct{}), make(chan struct{})
			handleSelection := sync.OnceFunc(func() { close(selection) })
			var cached *cluster.Store[*corev1.PersistentVolumeClaim]
			copied := newClaim("a", cloneOf("src"), ofClass("fast"))
			w := newWorld(t, twoNodes(newClaim("src", bound), newVolume("src", at(hostKey, "n2")), copied)...)
			w.run(func(env *cluster.Env, _ *Options) {
				cached = env.Set.Claims()
				cached.OnChange(func(old, now *corev1.PersistentVolumeClaim) {
					switch {
					case old == nil || now == nil:
					case row.selection && claim.SelectedNode(old) == "" && claim.SelectedNode(now) != "":
						<-selection
					case row.removal && claim.SelectedNode(old) != "" && claim.SelectedNode(now) == "":
						<-removal
					}
				})
			})
			t.Cleanup(func() { close(removal) })
			t.Cleanup(handleSelection)
			w.selected("a", "n2")
			w.Put(newClaim("a", cloneOf("src"), ofClass("fast"))) // the node is full
			w.Eventually(func() error {
				if pvc, found := cached.Get("ns/a"); !found || claim.SelectedNode(pvc) != "" {
					return errors.New("the removal is not cached")
				}
				return nil
			})
			if row.removal {
				handleSelection()
			}
			w.Put(newVolume("src", at(hostKey, "n2"), func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeReleased }))
			w.Never(100*time.Millisecond, func() error {
				if node := claim.SelectedNode(w.claim("a")); node != "" {
					return fmt.Errorf("node %q is selected again at once", node)
				}
				return nil
			})
		})
	}
}

// TestSources_ofANodeThatIsGone: nothing else removes their finalizers.
func TestSources_ofANodeThatIsGone(t *testing.T) {
	kept := func(pvc *corev1.PersistentVolumeClaim) { pvc.Finalizers = []string{lifecycle.CloneFinalizer} }
	sources := func(node string) []runtime.Object {
		objects := append(newSnapshot("snap", func(content *snapshotv1.VolumeSnapshotContent) {
			content.Labels = map[string]string{claim.ManagedByLabel: node}
		}), newClaim("src", bound, kept), newVolume("src", at(hostKey, node)))
		objects[0].(*snapshotv1.VolumeSnapshot).Finalizers = []string{lifecycle.RestoreFinalizer}
		return objects
	}
	for node, gone := range map[string]bool{"n1": false, "gone": true} {
		t.Run(node, func(t *testing.T) {
			t.Parallel()
			objects := sources(node)
			w := newWorld(t, twoNodes(append(objects, newClaim("copy", cloneOf("src"), ofClass("none")))...)...)
			w.run()
			w.Delete(objects[0])
			w.Delete(objects[2])
			w.event("ns/copy", "not found")
			if w.claim("src") == nil {
				t.Error("the source of a claim that waits is released")
			}
			w.Delete(newClaim("copy"))
			remaining := func() error {
				_, err := w.Snapshots.SnapshotV1().VolumeSnapshots("ns").Get(w.Context(), "snap", metav1.GetOptions{})
				if w.claim("src") != nil || err == nil {
					return errors.New("a source remains")
				}
				return nil
			}
			if gone {
				w.Eventually(remaining)
				return
			}
			w.Never(50*time.Millisecond, func() error {
				if w.claim("src") == nil {
					return errors.New("the source of a node that exists is released")
				}
				return nil
			})
		})
	}
}

// TestCrash_atEveryStep: the elected process ends between any two steps, and the next one
// finishes its work.
func TestCrash_atEveryStep(t *testing.T) {
	for _, point := range []string{"label/volume", "label/claim", "label/content", "select/before", "select/after", "unselect"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, twoNodes(newVolume("a", at(hostKey, "n1")), newClaim("late", onNode("n1")), newClaim("gone", onNode("gone")))...)
			w.Add(append(newSnapshot("a"), newClaim("free"))...)
			var death *apiserver.Death
			stop := w.run(func(env *cluster.Env, _ *Options) { death = w.Mortal(env, "coordinate/"+point) })
			death.Await()
			stop()
			w.run()
			w.selected("late", "n1")
			w.selected("free", "n1", "n2")
			w.selected("gone", "n1", "n2")
			label(w, w.Core.CoreV1().PersistentVolumes().Get, "pv-a", claim.NodeLabel, "n1")
			label(w, w.Snapshots.SnapshotV1().VolumeSnapshotContents().Get, "content-a", claim.ManagedByLabel, "n1")
		})
	}
}

func TestLostNodes_haveVolumesAndAreGoneNotReadyOrWithoutTheDriver(t *testing.T) {
	objects := slices.Concat(machine("fine"), machine("unready", notReady), machine("idle", notReady), machine("without")[:1])
	for _, name := range []string{"fine", "unready", "gone", "without"} {
		objects = append(objects, newVolume("a-"+name, at(hostKey, name), labelledAs(name)), newVolume("b-"+name, at(hostKey, name), labelledAs(name)))
	}
	objects = append(objects, newVolume("zonal", at(zoneKey, "z"), labelledAs(claim.AnyNode)))
	w := newWorld(t, objects...)
	var env *cluster.Env
	w.run(func(e *cluster.Env, _ *Options) { env = e })
	w.Eventually(func() error {
		if lost := w.Metrics(env)["holdfast_lost_nodes "+driverName]; lost != 3 {
			return fmt.Errorf("%v lost nodes, want 3", lost)
		}
		return nil
	})
}
