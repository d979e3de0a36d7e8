package claim

import (
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// Placement is what decides where a new volume may be made.
type Placement struct {
	// Claim is the claim's name, which spreads claims without a selected node.
	Claim string
	// Node is the place of the node that the scheduler selected, nil if it
	// selected none (immediate binding).
	Node Term
	// Allowed are the allowedTopologies of the class.
	Allowed []corev1.TopologySelectorTerm
	// Places is asked when neither Node with Strict nor Allowed decides: with a
	// selected node the Terms of all nodes with its keys, else of all nodes.
	Places func() *Terms
	// Strict keeps a volume to the selected node's own Term.
	Strict bool
	// Immediate sends all places for claims without a selected node.
	Immediate bool
}

// Requirement is the accessibility_requirements of the CreateVolumeRequest, nil
// where none is to be sent. The topologies in it are shared: never change them.
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
	places := NewTerms(allowed)
	if len(p.Allowed) == 0 {
		if places = p.Places(); places.Len() == 0 {
			return nil, fmt.Errorf("no node has registered the driver together with labels for its topology keys; see that the driver's node plugin runs")
		}
	}
	if places.Len() == 0 {
		return nil, errors.New("allowedTopologies: no term of them allows a place; name keys and values, or leave the field out")
	}
	first := p.first(places)
	if first < 0 {
		return nil, p.notAllowed()
	}
	return &csi.TopologyRequirement{Requisite: places.From(0), Preferred: places.From(first)}, nil
}

// first is the place to begin with, -1 if the selected node has none of them.
func (p Placement) first(places *Terms) int {
	if p.Node != nil {
		return places.FirstWithin(p.Node)
	}
	return Spread(p.Claim, places.Len())
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
