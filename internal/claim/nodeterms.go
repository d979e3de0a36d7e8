package claim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// NodeTerms has the Terms of all nodes of a cluster by the topology keys that their
// driver registered, and caches the lists that requests carry. A change of a node
// costs in proportion to its keys, not to the cluster; a list is made again only
// when a Term appeared or went. The zero value has no nodes. It is not safe for
// concurrent use; the Terms it returns are.
type NodeTerms struct {
	nodes map[string]nodeTopology
	sets  map[string]*keySet
	all   *Terms // nil: to be made again
}

// nodeTopology is a node as it was last seen. labels is shared and never changed.
type nodeTopology struct {
	set    string
	labels map[string]string
}

// keySet has the Terms of the nodes that registered at least these keys and have
// labels for all of them.
type keySet struct {
	keys       []string
	registered int // nodes that registered exactly these
	counts     map[string]*topologyCount
	terms      *Terms // nil: to be made again
}

type topologyCount struct {
	term     Term
	topology *csi.Topology
	nodes    int // that have the Term
	own      int // of those, the ones that registered exactly the set's keys
}

// Put adds a node with the topology keys that the driver registered on it
// (CSINode) and its labels, which must not be changed afterwards. It returns
// whether the node's own Term changed, and with it perhaps Segments.
func (n *NodeTerms) Put(node string, keys []string, labels map[string]string) (changed bool) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	set := strings.Join(keys, ",")
	if known, found := n.nodes[node]; found && known.set == set && n.sameTerms(known, labels) {
		n.nodes[node] = nodeTopology{set: set, labels: labels} // or a set made later would read old labels
		return false
	}
	before := n.ownTerm(node)
	n.take(node)
	if n.nodes == nil {
		n.nodes, n.sets = map[string]nodeTopology{}, map[string]*keySet{}
	}
	here := nodeTopology{set: set, labels: labels}
	if n.sets[set] == nil && len(keys) > 0 {
		n.begin(set, keys)
	}
	n.nodes[node] = here
	for id, s := range n.sets {
		n.count(s, id, here, keys, 1)
	}
	n.prune()
	return before != n.ownTerm(node)
}

// Remove records that a node was deleted or its driver is no longer registered. It
// returns whether the node had a Term.
func (n *NodeTerms) Remove(node string) (changed bool) {
	before := n.ownTerm(node)
	n.take(node)
	n.prune()
	return before != ""
}

func (n *NodeTerms) take(node string) {
	known, found := n.nodes[node]
	if !found {
		return
	}
	keys := n.keysOf(known)
	for id, s := range n.sets {
		n.count(s, id, known, keys, -1)
	}
	delete(n.nodes, node)
}

func (n *NodeTerms) keysOf(known nodeTopology) []string {
	if s := n.sets[known.set]; s != nil {
		return s.keys
	}
	return nil
}

// begin makes a key set with the Terms of the nodes known so far.
func (n *NodeTerms) begin(id string, keys []string) {
	s := &keySet{keys: keys, counts: map[string]*topologyCount{}}
	n.sets[id] = s
	for _, known := range n.nodes {
		n.count(s, id, known, n.keysOf(known), 1)
	}
}

// prune drops key sets that no node registers any more.
func (n *NodeTerms) prune() {
	for id, s := range n.sets {
		if s.registered == 0 {
			delete(n.sets, id)
			n.all = nil
		}
	}
}

// count adds a node with these registered keys to a key set, or takes it out.
func (n *NodeTerms) count(s *keySet, id string, node nodeTopology, keys []string, by int) {
	own := 0
	if node.set == id {
		own = by
		s.registered += by
	}
	if !covers(keys, s.keys) {
		return
	}
	term, missing := NodeTerm(s.keys, node.labels)
	if missing != "" {
		return
	}
	name := term.String()
	here := s.counts[name]
	if here == nil {
		here = &topologyCount{term: term, topology: term.Topology()}
		s.counts[name] = here
		s.terms, n.all = nil, nil
	}
	here.nodes += by
	here.own += own
	if here.nodes == 0 {
		delete(s.counts, name)
		s.terms, n.all = nil, nil
	}
}

// sameTerms reports whether a known node has the same Terms under other labels.
func (n *NodeTerms) sameTerms(known nodeTopology, labels map[string]string) bool {
	for _, key := range n.keysOf(known) {
		before, had := known.labels[key]
		after, has := labels[key]
		if before != after || had != has {
			return false
		}
	}
	return true // every set that covers the node has some of these keys only
}

// ownTerm is the node's Term under its own keys, "" if it has none.
func (n *NodeTerms) ownTerm(node string) string {
	term, err := n.Term(node)
	if err != nil {
		return ""
	}
	return term.String()
}

// Has reports whether the driver is registered on the node.
func (n *NodeTerms) Has(node string) bool {
	_, found := n.nodes[node]
	return found
}

// Term is the Term of a node on which the driver is registered.
func (n *NodeTerms) Term(node string) (Term, error) {
	known, found := n.nodes[node]
	if !found {
		return nil, fmt.Errorf("node %q: the driver is not registered there", node)
	}
	keys := n.keysOf(known)
	if len(keys) == 0 {
		return nil, fmt.Errorf("node %q: the driver registered no topology keys there; its NodeGetInfo must return accessible_topology",
			node)
	}
	term, missing := NodeTerm(keys, known.labels)
	if missing != "" {
		return nil, fmt.Errorf("node %q: the driver registered the topology key %s but the node has no such label yet; "+
			"the kubelet sets it when the driver registers", node, missing)
	}
	return term, nil
}

// Like is the Terms of all nodes that have the keys of this one.
func (n *NodeTerms) Like(node string) *Terms {
	s := n.sets[n.nodes[node].set]
	if s == nil {
		return nil
	}
	return s.list()
}

func (s *keySet) list() *Terms {
	if s.terms == nil {
		s.terms = listOf(s.counts)
	}
	return s.terms
}

// All is the Terms of all nodes under every key set that is registered
// somewhere, so that Terms with different keys may mix.
func (n *NodeTerms) All() *Terms {
	if n.all != nil {
		return n.all
	}
	if len(n.sets) == 1 {
		for _, s := range n.sets {
			n.all = s.list()
		}
		return n.all
	}
	every := map[string]*topologyCount{}
	for _, s := range n.sets {
		for name, p := range s.counts {
			every[name] = p
		}
	}
	n.all = listOf(every)
	return n.all
}

func listOf(counts map[string]*topologyCount) *Terms {
	sorted := make([]*topologyCount, 0, len(counts))
	for _, p := range counts {
		sorted = append(sorted, p)
	}
	slices.SortFunc(sorted, func(a, b *topologyCount) int { return a.term.Compare(b.term) })
	terms, topologies := make([]Term, len(sorted)), make([]*csi.Topology, len(sorted))
	for i, p := range sorted {
		terms[i], topologies[i] = p.term, p.topology
	}
	return termsOf(terms, topologies)
}

// Segments is the distinct Terms of nodes under their own keys, sorted: the
// topologies that capacity is reported for.
func (n *NodeTerms) Segments() []Term {
	var own []Term
	for _, s := range n.sets {
		for _, p := range s.counts {
			if p.own > 0 {
				own = append(own, p.term)
			}
		}
	}
	return SortTerms(own)
}

// covers reports whether sorted keys contain all of the sorted desired ones.
func covers(keys, desired []string) bool {
	at := 0
	for _, key := range desired {
		for at < len(keys) && keys[at] < key {
			at++
		}
		if at == len(keys) || keys[at] != key {
			return false
		}
	}
	return true
}
