package coordinate

import (
	"cmp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// node is a node on which the driver is registered, with labels for all of the driver's
// topology keys.
type node struct {
	name            string
	term            claim.Term
	ready, cordoned bool
}

// open reports whether the node may be selected.
func (n node) open() bool { return n.ready && !n.cordoned }

// nodes are the nodes of the driver. They are safe for concurrent use.
type nodes struct {
	driver   string
	objects  *cluster.Store[*corev1.Node]
	csiNodes *cluster.Store[*storagev1.CSINode]
	changed  func(name string)

	mu     sync.Mutex
	known  map[string]node
	lost   map[string]time.Time // since when nodes with labelled volumes lack the driver
	having map[string][]string  // names of the nodes with a segment, by "key=value"
	sorted []node               // nil: to be made again
}

func newNodes(env *cluster.Env) *nodes {
	n := &nodes{
		driver: env.Driver, objects: env.Set.Nodes(), csiNodes: env.Set.CSINodes(),
		known: map[string]node{}, lost: map[string]time.Time{}, having: map[string][]string{},
	}
	n.objects.OnChange(func(old, now *corev1.Node) {
		if now == nil {
			now = old
		}
		n.refresh(now.Name)
	})
	n.csiNodes.OnChange(func(old, now *storagev1.CSINode) {
		if now == nil {
			now = old
		}
		n.refresh(now.Name)
	})
	return n
}

// onChange registers the function that is called with the name of a node that changed.
func (n *nodes) onChange(f func(name string)) { n.changed = f }

// refresh takes a node's state from the caches, which are ahead of the events.
func (n *nodes) refresh(name string) {
	n.mu.Lock()
	before, had := n.known[name]
	after, has := n.read(name)
	if has || !n.exists(name) {
		delete(n.lost, name)
	}
	same := had == has && before.ready == after.ready && before.cordoned == after.cordoned && before.term.Compare(after.term) == 0
	if !same {
		n.replace(before, had, after, has)
	}
	n.mu.Unlock()
	if !same && n.changed != nil {
		n.changed(name)
	}
}

func (n *nodes) read(name string) (node, bool) {
	object, found := n.objects.Get(name)
	csiNode, described := n.csiNodes.Get(name)
	if !found || !described {
		return node{}, false
	}
	at := slices.IndexFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == n.driver })
	if at < 0 {
		return node{}, false
	}
	term, missing := claim.NodeTerm(slices.Compact(slices.Sorted(slices.Values(csiNode.Spec.Drivers[at].TopologyKeys))), object.Labels)
	if missing != "" {
		return node{}, false // the kubelet sets the label
	}
	return node{name: name, term: term, ready: cluster.Ready(object), cordoned: object.Spec.Unschedulable}, true
}

func (n *nodes) replace(before node, had bool, after node, has bool) {
	n.sorted = nil
	if had {
		delete(n.known, before.name)
		for _, key := range segmentKeys(before.term) {
			n.having[key] = slices.DeleteFunc(n.having[key], func(name string) bool { return name == before.name })
			if len(n.having[key]) == 0 {
				delete(n.having, key)
			}
		}
	}
	if has {
		n.known[after.name] = after
		for _, key := range segmentKeys(after.term) {
			n.having[key] = append(n.having[key], after.name)
		}
	}
}

func segmentKeys(term claim.Term) []string {
	keys := make([]string, len(term))
	for i, segment := range term {
		keys[i] = segment.Key + "=" + segment.Value
	}
	return keys
}

// get finds a node on which the driver is registered.
func (n *nodes) get(name string) (node, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, ok := n.known[name]
	return found, ok
}

// registered reports whether the node's CSINode names the driver.
func (n *nodes) registered(name string) bool {
	csiNode, found := n.csiNodes.Get(name)
	return found && slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == n.driver })
}

// exists reports whether the cache has a Node object.
func (n *nodes) exists(name string) bool {
	_, found := n.objects.Get(name)
	return found
}

// anyExists reports whether a Node object matches an affinity, with the driver or without.
func (n *nodes) anyExists(affinity *corev1.VolumeNodeAffinity) bool {
	return slices.ContainsFunc(n.objects.List(), func(object *corev1.Node) bool {
		return claim.FitsNode(affinity, object.Name, object.Labels)
	})
}

// labelled finds the Node object that a value of a node label names.
func (n *nodes) labelled(value string) (*corev1.Node, bool) {
	if object, found := n.objects.Get(value); found || !claim.NodeLabelHashed(value) {
		return object, found
	}
	all := n.objects.List()
	at := slices.IndexFunc(all, func(object *corev1.Node) bool { return claim.NodeLabelValue(object.Name) == value })
	if at < 0 {
		return nil, false
	}
	return all[at], true
}

// restarting returns for how much longer the node that a label names may be without the
// driver, which is unregistered for seconds while it is restarted or replaced: until the
// limit, from the first call on. It returns 0 for a node with the driver, one that does not
// exist, and one that the affinity excludes.
func (n *nodes) restarting(value string, affinity *corev1.VolumeNodeAffinity, limit time.Duration) time.Duration {
	object, exists := n.labelled(value)
	if !exists || !claim.FitsNode(affinity, object.Name, object.Labels) {
		return 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, registered := n.known[object.Name]; registered {
		return 0
	}
	since, found := n.lost[object.Name]
	if !found {
		since = time.Now()
		n.lost[object.Name] = since
	}
	return max(limit-time.Since(since), 0)
}

// all returns the nodes, sorted by name. The caller must not modify the list.
func (n *nodes) all() []node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sorted == nil {
		n.sorted = make([]node, 0, len(n.known))
		for _, one := range n.known {
			n.sorted = append(n.sorted, one)
		}
		slices.SortFunc(n.sorted, func(a, b node) int { return cmp.Compare(a.name, b.name) })
	}
	return n.sorted
}

// matching returns the nodes that an affinity matches, sorted by name.
func (n *nodes) matching(affinity *corev1.VolumeNodeAffinity) []node {
	n.mu.Lock()
	names, narrowed := n.candidates(affinity)
	n.mu.Unlock()
	candidates := n.all()
	if narrowed {
		candidates = nil
		for _, name := range names {
			if one, found := n.get(name); found {
				candidates = append(candidates, one)
			}
		}
		slices.SortFunc(candidates, func(a, b node) int { return cmp.Compare(a.name, b.name) })
	}
	var matching []node
	for _, one := range candidates {
		if claim.FitsNode(affinity, one.name, one.term.Map()) {
			matching = append(matching, one)
		}
	}
	return matching
}

// candidates narrows the nodes to those with the segment that an affinity with one term
// requires first, as those of CSI drivers do. It saves the comparison with each node.
func (n *nodes) candidates(affinity *corev1.VolumeNodeAffinity) (names []string, narrowed bool) {
	if len(affinity.Required.NodeSelectorTerms) != 1 {
		return nil, false
	}
	for _, e := range affinity.Required.NodeSelectorTerms[0].MatchExpressions {
		if e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
			return slices.Clone(n.having[e.Key+"="+e.Values[0]]), true
		}
	}
	return nil, false
}
