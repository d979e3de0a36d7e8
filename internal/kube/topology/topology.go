// Package topology knows where volumes can be reached from: it follows the
// topology keys that a driver registered on each node (CSINode) and the nodes'
// labels, and says what a CreateVolumeRequest has to ask for. Provisioning asks
// it for each claim, capacity for the places to tell of. On a node that works
// for itself it knows that node's place only, and caches nothing.
package topology

import (
	"errors"
	"fmt"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// ErrNodeGone says that the selected node is no longer there, or no longer runs
// the driver: the scheduler has to choose again.
var ErrNodeGone = errors.New("the selected node cannot take the volume")

// Options of a Tracker.
type Options struct {
	// Strict keeps a volume to the place of its selected node (--strict-topology).
	Strict bool
	// Immediate sends all places for a claim without a selected node (--immediate-topology).
	Immediate bool
	// Off is for a driver without VOLUME_ACCESSIBILITY_CONSTRAINTS: nothing is
	// required, and no node is watched.
	Off bool
}

// Tracker follows the nodes. It is safe for concurrent use.
type Tracker struct {
	driver  string
	options Options
	// node is the process's own when it works for one node only.
	node    string
	sources *sources // nil when no node is watched

	mu      sync.Mutex
	places  claim.NodeTerms
	changed []func()
}

type sources struct {
	nodes    *cluster.Store[*corev1.Node]
	csiNodes *cluster.Store[*storagev1.CSINode]
}

// New makes a Tracker; in a node's scope, of that node's segments.
func New(env *cluster.Env, o Options) *Tracker {
	t := &Tracker{driver: env.Driver, options: o, node: env.Scope.Node}
	switch {
	case o.Off:
	case !env.Scope.Central():
		var keys []string
		for _, segment := range claim.NewTerm(env.Scope.Segments) {
			keys = append(keys, segment.Key)
		}
		t.places.Put(t.node, keys, env.Scope.Segments)
	default:
		t.sources = &sources{nodes: env.Set.Nodes(), csiNodes: env.Set.CSINodes()}
		t.sources.nodes.OnChange(func(old, new *corev1.Node) { t.look(nameOf(old, new)) })
		t.sources.csiNodes.OnChange(func(old, new *storagev1.CSINode) { t.look(nameOf(old, new)) })
	}
	return t
}

// nameOf is the name of an object that came, changed or went.
func nameOf[T interface {
	comparable
	GetName() string
}](old, new T) string {
	var none T
	if new != none {
		return new.GetName()
	}
	return old.GetName()
}

// OnChange has f called after Segments may have changed. f must not block. It
// is for constructors, before the caches are started.
func (t *Tracker) OnChange(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed = append(t.changed, f)
}

// look takes a node's state from the caches. They are ahead of the events, so
// that the last event about a node leaves it as it is now.
func (t *Tracker) look(name string) {
	if !t.update(name) {
		return
	}
	t.mu.Lock()
	tell := t.changed
	t.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// update reads the caches under the lock: two events about one node must not
// put an older state over a newer one.
func (t *Tracker) update(name string) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node, found := t.sources.nodes.Get(name)
	csiNode, described := t.sources.csiNodes.Get(name)
	if found && described {
		if keys, registered := keysOf(csiNode, t.driver); registered {
			return t.places.Put(name, keys, node.Labels)
		}
	}
	return t.places.Remove(name)
}

func keysOf(node *storagev1.CSINode, driver string) (keys []string, registered bool) {
	for _, d := range node.Spec.Drivers {
		if d.Name == driver {
			return d.TopologyKeys, true
		}
	}
	return nil, false
}

// Requirement is the accessibility_requirements of the volume for a claim, nil
// if none are to be sent. selectedNode is "" for immediate binding. What it
// returns is shared: it must not be changed. The error is ErrNodeGone when
// another node has to be selected; any other may pass by itself.
func (t *Tracker) Requirement(pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, selectedNode string) (*csi.TopologyRequirement, error) {
	if t.options.Off {
		return nil, nil
	}
	wish := claim.Placement{
		Claim: pvc.Name, Allowed: class.AllowedTopologies, Strict: t.options.Strict, Immediate: t.options.Immediate,
		Terms: func() *claim.Terms { return t.list(selectedNode) },
	}
	if selectedNode != "" {
		node, err := t.nodeTerm(selectedNode)
		if err != nil {
			return nil, fmt.Errorf("topology of %s: %w", claim.Describe(pvc), err)
		}
		wish.Node = node
	}
	requirement, err := wish.Requirement()
	if err != nil {
		return nil, fmt.Errorf("topology of %s of StorageClass %q: %w", claim.Describe(pvc), class.Name, err)
	}
	return requirement, nil
}

// list is the places of all nodes like the selected one, or of all nodes.
func (t *Tracker) list(selectedNode string) *claim.Terms {
	t.mu.Lock()
	defer t.mu.Unlock()
	if selectedNode == "" {
		return t.places.All()
	}
	return t.places.Like(selectedNode)
}

func (t *Tracker) nodeTerm(name string) (claim.Term, error) {
	if !t.has(name) && t.sources != nil {
		t.look(name) // the caches may know of it before we were told
	}
	if !t.has(name) {
		return nil, t.absent(name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.places.Term(name)
}

func (t *Tracker) has(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.places.Has(name)
}

// absent says why a node has no place.
func (t *Tracker) absent(name string) error {
	if t.sources == nil {
		return fmt.Errorf("node %q is selected; this process works for node %q only", name, t.node)
	}
	if _, found := t.sources.nodes.Get(name); !found {
		return fmt.Errorf("%w: node %q does not exist any more", ErrNodeGone, name)
	}
	if _, found := t.sources.csiNodes.Get(name); !found {
		return fmt.Errorf("%w: node %q has no CSINode object; its kubelet makes it", ErrNodeGone, name)
	}
	return fmt.Errorf("%w: driver %s is not registered on node %q; see that its node plugin runs there", ErrNodeGone, t.driver, name)
}

// Segments is the distinct places of nodes that run the driver, sorted. For a
// driver without topology that is one place that is everywhere, of which no
// single node can tell.
func (t *Tracker) Segments() []claim.Term {
	if t.options.Off {
		if t.node != "" {
			return nil
		}
		return []claim.Term{{}}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.places.Segments()
}
