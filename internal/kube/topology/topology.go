// Package topology tracks the topology segments of a driver. It watches the
// topology keys that the driver registered on each node (CSINode) and the nodes'
// labels, and computes the accessibility_requirements of CreateVolumeRequests.
// The provisioner uses it for each claim, capacity for the list of segments. In
// the process of a single node it has that node's segments only and watches
// nothing.
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

// ErrNodeGone reports that the selected node does not exist any more or does not
// run the driver any more: the scheduler has to select another.
var ErrNodeGone = errors.New("the selected node cannot take the volume")

// Options of a Tracker.
type Options struct {
	// Strict restricts a volume to the segment of its selected node (--strict-topology).
	Strict bool
	// Immediate sends all segments for a claim without a selected node (--immediate-topology).
	Immediate bool
	// Off is for a driver without VOLUME_ACCESSIBILITY_CONSTRAINTS: requests carry no
	// requirements, and no node is watched.
	Off bool
}

// Tracker tracks the nodes. It is safe for concurrent use.
type Tracker struct {
	driver  string
	options Options
	// node is the node that the process serves; "" in a central process.
	node    string
	sources *sources // nil when no node is watched

	mu      sync.Mutex
	terms   claim.NodeTerms
	changed []func()
}

type sources struct {
	nodes    *cluster.Store[*corev1.Node]
	csiNodes *cluster.Store[*storagev1.CSINode]
}

// New makes a Tracker. In a node's scope it has that node's segments only.
func New(env *cluster.Env, o Options) *Tracker {
	t := &Tracker{driver: env.Driver, options: o, node: env.Scope.Node}
	switch {
	case o.Off:
	case !env.Scope.Central():
		var keys []string
		for _, segment := range claim.NewTerm(env.Scope.Segments) {
			keys = append(keys, segment.Key)
		}
		t.terms.Put(t.node, keys, env.Scope.Segments)
	default:
		t.sources = &sources{nodes: env.Set.Nodes(), csiNodes: env.Set.CSINodes()}
		t.sources.nodes.OnChange(func(old, new *corev1.Node) { t.refresh(nameOf(old, new)) })
		t.sources.csiNodes.OnChange(func(old, new *storagev1.CSINode) { t.refresh(nameOf(old, new)) })
	}
	return t
}

// nameOf returns the name of an object that was added, updated or deleted.
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

// OnChange registers f, which is called after Segments may have changed. f must
// not block. Call OnChange before the caches start.
func (t *Tracker) OnChange(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed = append(t.changed, f)
}

// refresh takes a node's state from the caches and calls the handlers if it changed.
// The caches are ahead of the events, so that the last event leaves the newest state.
func (t *Tracker) refresh(name string) {
	if !t.update(name) {
		return
	}
	t.mu.Lock()
	handlers := t.changed
	t.mu.Unlock()
	for _, f := range handlers {
		f()
	}
}

// update reads the caches under the lock, so that of two events about one node
// neither replaces a newer state by an older one.
func (t *Tracker) update(name string) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node, found := t.sources.nodes.Get(name)
	csiNode, described := t.sources.csiNodes.Get(name)
	if found && described {
		if keys, registered := keysOf(csiNode, t.driver); registered {
			return t.terms.Put(name, keys, node.Labels)
		}
	}
	return t.terms.Remove(name)
}

func keysOf(node *storagev1.CSINode, driver string) (keys []string, registered bool) {
	for _, d := range node.Spec.Drivers {
		if d.Name == driver {
			return d.TopologyKeys, true
		}
	}
	return nil, false
}

// Requirement returns the accessibility_requirements of the volume for a claim, nil
// if the request has none. selectedNode is "" for immediate binding. The result is
// shared: the caller must not modify it. The error is ErrNodeGone if another node
// has to be selected; after any other error the caller retries.
func (t *Tracker) Requirement(
	pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, selectedNode string,
) (*csi.TopologyRequirement, error) {
	if t.options.Off {
		return nil, nil
	}
	placement := claim.Placement{
		Claim: pvc.Name, Allowed: class.AllowedTopologies, Strict: t.options.Strict, Immediate: t.options.Immediate,
		Terms: func() *claim.Terms { return t.list(selectedNode) },
	}
	if selectedNode != "" {
		node, err := t.nodeTerm(selectedNode)
		if err != nil {
			return nil, fmt.Errorf("topology of %s: %w", claim.Describe(pvc), err)
		}
		placement.Node = node
	}
	requirement, err := placement.Requirement()
	if err != nil {
		return nil, fmt.Errorf("topology of %s with StorageClass %q: %w", claim.Describe(pvc), class.Name, err)
	}
	return requirement, nil
}

// list returns the terms of all nodes with the selected node's topology keys, or of
// all nodes if none is selected.
func (t *Tracker) list(selectedNode string) *claim.Terms {
	t.mu.Lock()
	defer t.mu.Unlock()
	if selectedNode == "" {
		return t.terms.All()
	}
	return t.terms.Like(selectedNode)
}

func (t *Tracker) nodeTerm(name string) (claim.Term, error) {
	if !t.has(name) && t.sources != nil {
		t.refresh(name) // the caches may have it before its event arrives
	}
	if !t.has(name) {
		return nil, t.absent(name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.terms.Term(name)
}

func (t *Tracker) has(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.terms.Has(name)
}

// absent returns the reason why a node has no term.
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

// Segments returns the distinct segments of the nodes that run the driver, sorted.
// A driver without topology has one empty segment, which contains all nodes; the
// process of a single node has none then, because it cannot speak for all nodes.
func (t *Tracker) Segments() []claim.Term {
	if t.options.Off {
		if t.node != "" {
			return nil
		}
		return []claim.Term{{}}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.terms.Segments()
}
