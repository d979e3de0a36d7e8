package claim

import (
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// Placement is the input for the topology of a new volume.
type Placement struct {
	// Claim is the claim's name, which spreads claims without a selected node.
	Claim string
	// Node is the Term of the node that the scheduler selected, nil if it
	// selected none (immediate binding).
	Node Term
	// Allowed are the allowedTopologies of the class.
	Allowed []corev1.TopologySelectorTerm
	// Terms is called when neither Node with Strict nor Allowed decides. It returns
	// the Terms of all nodes with the keys of the selected node, or of all nodes if
	// there is none.
	Terms func() *Terms
	// Strict keeps a volume to the selected node's own Term.
	Strict bool
	// Immediate sends all Terms for claims without a selected node.
	Immediate bool
}

// Requirement is the accessibility_requirements of the CreateVolumeRequest, nil
// if none is to be sent. The topologies in it are shared: never change them.
func (p Placement) Requirement() (*csi.TopologyRequirement, error) {
	if p.Node == nil && len(p.Allowed) == 0 && !p.Immediate {
		return nil, nil
	}
	allowed, err := FlattenAllowed(p.Allowed)
	if err != nil {
		return nil, err
	}
	if p.Node != nil && p.Strict {
		return p.strict(allowed)
	}
	terms := NewTerms(allowed)
	if len(p.Allowed) == 0 {
		if terms = p.Terms(); terms.Len() == 0 {
			return nil, errors.New("no node has registered the driver together with labels for its topology keys; " +
				"check that the driver's node plugin runs")
		}
	}
	if terms.Len() == 0 {
		return nil, errors.New("allowedTopologies: no term of them allows a topology; name keys and values, or leave the field out")
	}
	first := p.first(terms)
	if first < 0 {
		return nil, p.notAllowed()
	}
	return &csi.TopologyRequirement{Requisite: terms.From(0), Preferred: terms.From(first)}, nil
}

// first is the index of the Term to begin with, -1 if the selected node has none of them.
func (p Placement) first(terms *Terms) int {
	if p.Node != nil {
		return terms.FirstWithin(p.Node)
	}
	return Spread(p.Claim, terms.Len())
}

func (p Placement) strict(allowed []Term) (*csi.TopologyRequirement, error) {
	if len(p.Allowed) > 0 && NewTerms(allowed).FirstWithin(p.Node) < 0 {
		return nil, p.notAllowed()
	}
	here := []*csi.Topology{p.Node.Topology()}
	return &csi.TopologyRequirement{Requisite: here, Preferred: here}, nil
}

func (p Placement) notAllowed() error {
	return fmt.Errorf("allowedTopologies: none of them fits the selected node (%s)", p.Node)
}
