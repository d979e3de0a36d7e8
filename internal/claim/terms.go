package claim

import (
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Terms is a sorted list of distinct Terms that many requests share: it is
// made once and never changes, and neither may what its methods return.
type Terms struct {
	terms []Term
	// twice is the list in CSI, two times over: each rotation of it is a part
	// of it, so that a request costs nothing however many nodes there are.
	twice []*csi.Topology
}

// NewTerms takes a list that SortTerms has returned.
func NewTerms(sorted []Term) *Terms {
	topologies := make([]*csi.Topology, len(sorted))
	for i, term := range sorted {
		topologies[i] = term.Topology()
	}
	return termsOf(sorted, topologies)
}

func termsOf(sorted []Term, topologies []*csi.Topology) *Terms {
	return &Terms{terms: sorted, twice: slices.Concat(topologies, topologies)}
}

// Len is how many Terms there are; a nil Terms has none.
func (t *Terms) Len() int {
	if t == nil {
		return 0
	}
	return len(t.terms)
}

// List is the Terms in their order.
func (t *Terms) List() []Term {
	if t == nil {
		return nil
	}
	return t.terms
}

// From is the Terms in CSI, beginning with the one at first and going round.
func (t *Terms) From(first int) []*csi.Topology {
	n := len(t.terms)
	return t.twice[first : first+n : first+n]
}

// FirstWithin is the index of the first Term that is within node, -1 if none is.
func (t *Terms) FirstWithin(node Term) int {
	for i, term := range t.terms {
		if len(term) >= len(node) {
			break // of these only one equal to node can be within it
		}
		if term.Within(node) {
			return i
		}
	}
	if at, found := slices.BinarySearchFunc(t.terms, node, Term.Compare); found {
		return at
	}
	return -1
}
