package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/intent"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// chaos is a cluster whose driver and API server fail now and then.
type chaos struct {
	*world
	trouble *csidriver.Trouble
	choose  *rand.Rand
	short   bool // names of volumes collide
	focused bool // every crash is next to the creation of a PersistentVolume, which an administrator then keeps
	nodes   bool // the controllers run on nodes at times, else always centrally
	// immediate, with nodes: no node is selected for a claim.
	immediate bool
	// labelled, with nodes: each process watches the objects that are labelled for its
	// node, and an elected process, which dies at a random step, labels them.
	labelled bool
	elected  *elected
	// home, with immediate, is the node of a central process's instance of the driver,
	// where each node has an instance with its own storage; "" if the storage is one.
	home string
	// copies, with labelled and home, are claims that are restored from snapshots.
	copies *copies
	alive  map[string]*corev1.PersistentVolumeClaim
	kept   map[string]bool // handles of volumes that an administrator keeps
	bare   map[string]bool // those of them that have no PersistentVolume any more
	// unclear has the UIDs of claims whose PersistentVolume may have existed as far as
	// the provisioner can know: an answer to its creation was lost, or the process ended
	// between the mark in the intent and that answer.
	unclear sync.Map
	// rejected has the UID of the claim whose PersistentVolume of a name was refused.
	rejected sync.Map
	made     int
	death    *apiserver.Death
	point    string // where it dies
	bury     func() // ends the provisioner
	// stopBinding ends the controller-manager.
	stopBinding func()
}

func newChaos(t *testing.T, seed uint64, focused bool) *chaos {
	c := &chaos{
		world: nodesWorld(t, newClass(), "n1", "n2"), trouble: csidriver.NewTrouble(seed), choose: rand.New(rand.NewPCG(seed, 1)),
		alive: map[string]*corev1.PersistentVolumeClaim{}, kept: map[string]bool{}, bare: map[string]bool{},
	}
	// On nodes, equal names would be volumes of two nodes: the driver here has one of a name.
	c.focused = focused
	c.short = !focused && c.choose.IntN(2) == 0
	if c.nodes = !c.short && c.choose.IntN(2) == 0; c.nodes {
		c.immediate, c.labelled = c.choose.IntN(4) > 0, c.choose.IntN(2) == 0
		if c.immediate && c.choose.IntN(3) > 0 {
			c.home, c.Driver.Creation.Answer = c.node(), nil
		}
		if c.home != "" && c.labelled && c.choose.IntN(3) > 0 {
			c.copies = newCopies()
			c.addSnapshots()
		}
		c.Put(c.class())
	}
	c.Driver.Before = func(ctx context.Context, rpc string, request any) error {
		c.refuseCopies(request)
		if err := c.before(ctx, rpc, request); err != nil {
			return err
		}
		return c.trouble.Before(ctx, rpc, request)
	}
	c.Driver.After = c.trouble.After
	trouble := func(q apiserver.Request) error {
		if q.Verb == "list" || q.Verb == "watch" || q.Resource == "persistentvolumeclaims" || !c.trouble.OneIn(8) {
			return nil
		}
		c.lost(q)
		return fmt.Errorf("etcdserver: leader changed")
	}
	c.React("create", "persistentvolumes", func(q apiserver.Request) error {
		if !c.trouble.OneIn(3) {
			return nil
		}
		if pv := created(q); pv != nil {
			c.rejected.Store(pv.Name, pv.Spec.ClaimRef.UID)
		}
		return apierrors.NewForbidden(persistentVolumes, q.Name, errors.New("quota exceeded"))
	})
	c.React("*", "*", trouble)
	c.LoseAnswers("*", "*", trouble)
	return c
}

// lost notes a creation of a PersistentVolume without a definite answer: it was lost,
// or the read that has to confirm a refusal was.
func (c *chaos) lost(q apiserver.Request) {
	if q.Resource != "persistentvolumes" {
		return
	}
	switch q.Verb {
	case "create":
		if pv := created(q); pv != nil {
			c.unclear.Store(pv.Spec.ClaimRef.UID, true)
		}
	case "get":
		if uid, ok := c.rejected.Load(q.Name); ok {
			c.unclear.Store(uid, true)
		}
	}
}

// created returns the PersistentVolume that a request creates; nil for one of another kind.
func created(q apiserver.Request) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{}
	if json.Unmarshal(q.Body, pv) != nil || pv.Spec.ClaimRef == nil {
		return nil
	}
	return pv
}

// ended notes the intents that a process leaves marked.
func (c *chaos) ended() {
	for _, stored := range storedIntents(c.t, c.Cluster) {
		if stored.Err == nil && !stored.Intent.Unsaved {
			c.unclear.Store(types.UID(stored.Key), true)
		}
	}
}

// options of every process: the pause after a quarantine is short, and names may
// be shortened to five characters of "uidc…".
func (c *chaos) options(env *cluster.Env, o *Options) {
	o.SlowRetry = 20 * time.Millisecond
	if c.copies != nil {
		o.CrossNamespace, o.Snapshots = true, true
		env.Set.PollServed(20 * time.Millisecond)
	}
	if c.short {
		o.VolumeNameUUIDLength = 5
	}
}

// start starts the provisioner: centrally, on both nodes, or on one of them while
// the other is lost. It crashes most often between the PersistentVolume's creation
// and the end of the intent, where the most can happen to the volume.
func (c *chaos) start() {
	points := append(createPoints(), "undo/answered", "undo/deleted", "delete/called", "delete/removed")
	point := points[c.choose.IntN(len(points))]
	if c.focused || c.choose.IntN(2) == 0 {
		point = []string{"create/saving", "create/saved"}[c.choose.IntN(2)]
	}
	c.point = point
	mode := 0
	if c.nodes {
		mode = c.choose.IntN(4)
	}
	c.elect(mode >= 2, true)
	switch mode {
	case 0, 1:
		c.death, c.bury = c.mortal(point, c.central, c.options)
	case 2:
		c.death, c.bury = c.mortal(point, c.onNode(c.node()), c.options)
	case 3:
		_, stop := c.run(c.onNode("n2"), c.options)
		death, bury := c.mortal(point, c.onNode("n1"), c.options)
		c.death, c.bury = death, func() { stop(); bury() }
	}
}

// central deploys a central process. Without a selected node, its requests allow both
// nodes if each has storage of its own.
func (c *chaos) central(env *cluster.Env, o *Options) {
	everywhere(env, o)
	if c.home != "" {
		c.UseInstance(env, c.home)
		o.Topology = selectedOrSeveral{}
	}
}

// onNode deploys the process of a node.
func (c *chaos) onNode(node string) func(*cluster.Env, *Options) {
	as := immediateOnNode(node)
	if c.labelled {
		as = labelledOnNode(node)
	}
	if c.home == "" {
		return as
	}
	return c.withInstance(node, as)
}

// runLast starts what serves every volume: a central process, or the processes of all
// nodes if each has storage of its own. Before these last, a central process completes
// the intents that no node does.
func (c *chaos) runLast() {
	c.grant(true)
	c.elect(c.home != "", false)
	if c.home == "" {
		c.run(c.central, c.options)
		return
	}
	nodes := func() (stop func()) {
		_, first := c.run(c.onNode("n1"), c.options)
		_, second := c.run(c.onNode("n2"), c.options)
		return func() { first(); second() }
	}
	stop := nodes()
	c.Converges(c.onlyCentralIntents)
	stop()
	if c.stored() == 0 {
		nodes()
		return
	}
	_, stop = c.run(c.central, c.options)
	c.Converges(func() error {
		if c.stored() > 0 {
			return errors.New(c.describeIntents())
		}
		return nil
	})
	stop()
	nodes()
}

// onlyCentralIntents expects that every intent waits for a central process: its request
// allows several places, and its PersistentVolume may exist.
func (c *chaos) onlyCentralIntents() error {
	waiting := map[types.UID]bool{}
	for _, stored := range storedIntents(c.t, c.Cluster) {
		if stored.Err != nil {
			return stored.Err
		}
		left := stored.Intent
		requirement, err := left.Topology.Requirement()
		if _, only := lifecycle.OnlyPlace(requirement); err != nil || only || left.Node != "" || left.Unsaved {
			return fmt.Errorf("an intent is left: %+v", left)
		}
		waiting[types.UID(stored.Key)] = true
	}
	for name, pvc := range c.alive {
		if c.claimNow(name).Spec.VolumeName == "" && !waiting[pvc.UID] {
			return fmt.Errorf("claim %s, for node %q, labels %v, has no volume; intents: %s",
				name, selectedNode(c.claimNow(name)), c.claimNow(name).Labels, c.describeIntents())
		}
	}
	return nil
}

// class is the storage class with parameters that change.
func (c *chaos) class() *storagev1.StorageClass {
	class := newClass(parameters("tier", fmt.Sprint(c.choose.IntN(3))))
	if c.nodes && !c.immediate {
		waitForConsumer(class)
	}
	return class
}

func (c *chaos) node() string { return []string{"n1", "n2"}[c.choose.IntN(2)] }

// selected is a Topology that requires the selected node.
type selected struct{}

func (selected) Requirement(_ *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, node string) (*csi.TopologyRequirement, error) {
	if node == "" {
		node = "n1"
	}
	terms := []*csi.Topology{{Segments: map[string]string{"node": node}}}
	return &csi.TopologyRequirement{Requisite: terms, Preferred: terms}, nil
}

// selectedOrSeveral is a Topology that requires the selected node, and allows both
// without one.
type selectedOrSeveral struct{}

func (selectedOrSeveral) Requirement(pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) (*csi.TopologyRequirement, error) {
	if node == "" {
		return several().requirement, nil
	}
	return selected{}.Requirement(pvc, class, node)
}

func everywhere(_ *cluster.Env, o *Options) { o.Topology = selected{} }

// interrupt has the provisioner crash while it creates a volume, as a rule. The
// bound is for the claim of a lost node, which no process serves.
func (c *chaos) interrupt() {
	if !strings.HasPrefix(c.point, "create/") {
		return
	}
	c.add()
	select {
	case <-c.death.Seen:
	case <-time.After(time.Second):
	}
}

func (c *chaos) add() {
	c.made++
	pvc := newClaim(fmt.Sprint("c", c.made))
	if c.nodes && !c.immediate {
		onNode(c.node())(pvc)
	}
	if c.copies == nil || c.restore(pvc) {
		c.alive[pvc.Name] = pvc
	}
	c.Add(pvc)
}

// schedule selects a node for a claim whose node a provisioner took back.
func (c *chaos) schedule(name string) {
	pvc, err := c.Core.CoreV1().PersistentVolumeClaims("ns").Get(c.Context(), name, metav1.GetOptions{})
	if err != nil || !c.nodes || c.immediate || selectedNode(pvc) != "" {
		return
	}
	onNode(c.node())(pvc)
	_, _ = c.Core.CoreV1().PersistentVolumeClaims("ns").Update(c.Context(), pvc, metav1.UpdateOptions{}) // else at the next poll
}

func (c *chaos) pick() (name string) {
	names := slices.Sorted(maps.Keys(c.alive))
	if len(names) == 0 {
		return ""
	}
	return names[c.choose.IntN(len(names))]
}

func (c *chaos) drop(name string) {
	if pvc := c.alive[name]; pvc != nil {
		c.Delete(pvc)
		delete(c.alive, name)
	}
}

// keep is what an administrator does while the provisioner is down: a volume is
// kept under another claim, under another name or without an object, and its claim
// is deleted.
func (c *chaos) keep() {
	list, err := c.Core.CoreV1().PersistentVolumes().List(c.Context(), metav1.ListOptions{})
	if err != nil {
		return
	}
	list.Items = slices.DeleteFunc(list.Items, func(pv corev1.PersistentVolume) bool {
		return pv.DeletionTimestamp != nil || pv.Status.Phase == corev1.VolumeReleased || pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
	})
	if len(list.Items) == 0 {
		return
	}
	if begun := c.withIntent(list.Items); len(begun) > 0 && c.choose.IntN(4) > 0 {
		list.Items = begun
	}
	pv := &list.Items[c.choose.IntN(len(list.Items))]
	owner := pv.Spec.ClaimRef.Name
	c.kept[pv.Spec.CSI.VolumeHandle] = true
	// Without an object of the volume's name, a later claim whose volume has the same
	// name would get this volume.
	if pvc := c.alive[owner]; pvc != nil && !c.short && c.choose.IntN(2) == 0 {
		c.bare[pv.Spec.CSI.VolumeHandle] = true
		c.remove(c.retire(pv, pvc))
		delete(c.alive, owner)
		return
	}
	c.made++
	keeper := newClaim(fmt.Sprint("keeper", c.made), func(pvc *corev1.PersistentVolumeClaim) { pvc.Annotations = nil })
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "ns", Name: keeper.Name, UID: keeper.UID}
	if c.choose.IntN(2) == 0 {
		c.remove(pv)
		pv.Name, pv.UID, pv.ResourceVersion = "kept-"+pv.Name+keeper.Name, "", ""
	}
	keeper.Spec.VolumeName = pv.Name
	c.Put(pv)
	c.Add(keeper)
	c.drop(owner)
}

// withIntent selects the PersistentVolumes whose intents were not removed.
func (c *chaos) withIntent(volumes []corev1.PersistentVolume) (begun []corev1.PersistentVolume) {
	stored := storedIntents(c.t, c.Cluster)
	for i := range volumes {
		key := string(volumes[i].Spec.ClaimRef.UID)
		if slices.ContainsFunc(stored, func(s intent.Unserved[volumeIntent]) bool { return s.Key == key }) {
			begun = append(begun, volumes[i])
		}
	}
	return begun
}

func (c *chaos) step() {
	c.reelect()
	switch c.choose.IntN(8) {
	case 0, 1, 2:
		c.add()
	case 3, 4:
		c.drop(c.pick())
	case 5:
		c.Put(c.class())
		c.grant(c.choose.IntN(2) == 0)
	case 6, 7:
		if c.focused || c.choose.IntN(3) > 0 {
			c.interrupt()
		}
		if c.focused || c.choose.IntN(2) == 0 {
			c.death.Dead.Store(true) // with what it has not written yet
		}
		c.bury()
		c.ended()
		c.elect(false, false)
		c.stopBinding()
		if c.focused || c.choose.IntN(3) > 0 {
			c.keep()
		}
		if c.choose.IntN(3) == 0 {
			c.drop(c.pick())
		}
		c.stopBinding = c.controllerManager()
		c.start()
	}
}

// whole compares the driver's volumes with the objects: each PersistentVolume has
// its volume, each volume its one PersistentVolume, no intent remains, and each claim
// has a volume, unless another claim's volume has its name.
func (c *chaos) whole() error {
	list, err := c.Core.CoreV1().PersistentVolumes().List(c.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	if err := c.copied(list.Items); err != nil {
		return err
	}
	volumes, named, bound := c.Driver.Volumes(), map[string]bool{}, map[string]bool{}
	for _, pv := range list.Items {
		if named[pv.Spec.CSI.VolumeHandle] {
			return fmt.Errorf("two PersistentVolumes name volume %s", pv.Spec.CSI.VolumeHandle)
		}
		named[pv.Spec.CSI.VolumeHandle] = true
		bound[pv.Spec.ClaimRef.Name] = true
		if pv.DeletionTimestamp == nil && pv.Status.Phase != corev1.VolumeReleased && !slices.Contains(slices.Collect(maps.Values(volumes)), pv.Spec.CSI.VolumeHandle) {
			return fmt.Errorf("PersistentVolume %s lacks its volume %s", pv.Name, pv.Spec.CSI.VolumeHandle)
		}
		if pv.Status.Phase == corev1.VolumeReleased && !c.retainedByIntent(&pv) {
			return fmt.Errorf("PersistentVolume %s is to be reclaimed", pv.Name)
		}
	}
	for name, id := range volumes {
		if !named[id] && !c.bare[id] {
			return fmt.Errorf("no PersistentVolume names volume %s", name)
		}
	}
	waiting := 0 // claims whose volume's name another claim's volume has
	for name := range c.alive {
		if bound[name] {
			continue
		}
		if !c.short {
			c.schedule(name)
			return fmt.Errorf("claim %s has no volume", name)
		}
		waiting++
	}
	if n := c.stored(); n > waiting {
		c.endQuarantine()
		return fmt.Errorf("%d intents, %d claims wait: %s", n, waiting, c.describeIntents())
	}
	return nil
}

// endQuarantine does what the event of an intent in quarantine asks for: an
// administrator finds that the volume of its name is another's, and removes the entry.
// With equal names ALREADY_EXISTS cannot say whose volume exists.
func (c *chaos) endQuarantine() {
	volumes := c.Driver.Volumes()
	client := c.Core.CoreV1().ConfigMaps(apiserver.Intents)
	for _, stored := range storedIntents(c.t, c.Cluster) {
		if stored.Err != nil || stored.Intent.Quarantine == "" || !c.kept[volumes[stored.Intent.Volume.Name]] {
			continue
		}
		patch := fmt.Appendf(nil, `[{"op":"remove","path":"/data/%s"}]`, stored.Key)
		_, _ = client.Patch(c.Context(), stored.ConfigMap, types.JSONPatchType, patch, metav1.PatchOptions{}) // else at the next poll
	}
}

// describeIntents describes what is stored, for a failure.
func (c *chaos) describeIntents() string {
	objects, err := c.Core.CoreV1().ConfigMaps(apiserver.Intents).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var text []string
	for _, object := range objects.Items {
		text = append(text, fmt.Sprintf("%s %v", object.Name, object.Data))
	}
	return strings.Join(text, "; ")
}

// retainedByIntent reports a PersistentVolume of a deleted claim that the
// provisioner rightly retains: it may have existed before.
func (c *chaos) retainedByIntent(pv *corev1.PersistentVolume) bool {
	_, unclear := c.unclear.Load(pv.Spec.ClaimRef.UID)
	if !unclear || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		return false
	}
	c.kept[pv.Spec.CSI.VolumeHandle] = true
	return true
}

// keeps reports a kept volume that is gone: that is never right.
func (c *chaos) keeps() error {
	volumes := slices.Collect(maps.Values(c.Driver.Volumes()))
	for handle := range c.kept {
		if !slices.Contains(volumes, handle) {
			return fmt.Errorf("volume %s, which a PersistentVolume names, is deleted", handle)
		}
	}
	return nil
}

// TestModel_randomEventsAndCrashes: whatever happens in whatever order, each
// volume ends with exactly one PersistentVolume, nothing is left over, and no
// volume is deleted that an administrator keeps or another claim has.
func TestModel_randomEventsAndCrashes(t *testing.T) {
	for i := range 8 {
		seed, focused := rand.Uint64(), i%3 > 0
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := newChaos(t, seed, focused)
			c.stopBinding = c.controllerManager()
			c.start()
			for range 30 {
				c.step()
				time.Sleep(time.Duration(c.choose.IntN(8)) * time.Millisecond)
			}
			if c.home != "" { // the last deployment differs: it has to find an intent
				c.interrupt()
				c.death.Dead.Store(true)
			}
			c.bury()
			c.ended()
			if c.home != "" && c.choose.IntN(2) == 0 {
				c.drop(c.pick())
			}
			c.trouble.Calm()
			c.runLast()
			c.Converges(func() error { return errors.Join(c.whole(), c.keeps()) })
			for name := range c.alive {
				c.drop(name)
			}
			c.Converges(func() error {
				if err := errors.Join(c.whole(), c.keeps()); err != nil {
					return err
				}
				if left := len(c.Driver.Volumes()); left != len(c.kept) || c.stored() > 0 {
					return fmt.Errorf("left: %v, kept %v, intents: %s", c.Driver.Volumes(), c.kept, c.describeIntents())
				}
				return nil
			})
			// Of claims that share a name, each has a request of its own. What an instance
			// rejects for another node has no effect, which the trouble does not know.
			if changed := c.trouble.Changed(); len(changed) > 0 && !c.short && c.home == "" {
				t.Errorf("requests that changed before an answer told what the first one did: %v", changed)
			}
		})
	}
}
