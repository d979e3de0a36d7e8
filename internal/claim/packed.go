package claim

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// PackedTopology is a TopologyRequirement in little space: each topology is written
// once, each key once for all topologies that have the same keys, and a list as runs
// of topologies that follow each other. Many topologies are compressed, and can be stored
// apart from the lists (Split): the requirements of a cluster's claims differ in the
// order alone.
type PackedTopology struct {
	Plain *packed `json:"plain,omitempty"`
	// Gzip is the compressed JSON of Plain's topologies; without Plain, as earlier
	// versions wrote it, of all of packed.
	Gzip []byte `json:"gzip,omitempty"`
}

type packed struct {
	Topologies []packedTopologies `json:"places,omitempty"`
	Requisite  [][2]int           `json:"requisite,omitempty"` // first topology and how many
	Preferred  [][2]int           `json:"preferred,omitempty"`
}

// packedTopologies are topologies with the same keys.
type packedTopologies struct {
	Keys   []string   `json:"keys"`
	Values [][]string `json:"values"`
}

const (
	plainBytes    = 512     // longer texts of topologies are compressed
	unpackedBytes = 8 << 20 // larger than any request: a driver accepts 4 MiB
)

// TopologyPacker packs requirements. It keeps the topologies that it compressed last: the
// claims of a cluster have the same. Its zero value is ready for concurrent use.
type TopologyPacker struct{ last atomic.Pointer[compressed] }

type compressed struct{ text, small []byte }

// Pack packs a requirement; nil stays nil.
func (k *TopologyPacker) Pack(requirement *csi.TopologyRequirement) (*PackedTopology, error) {
	if requirement == nil {
		return nil, nil
	}
	p := packer{at: map[string]int{}, sets: map[string]int{}}
	for _, topology := range slices.Concat(requirement.GetRequisite(), requirement.GetPreferred()) {
		p.add(NewTerm(topology.GetSegments()))
	}
	p.number()
	plain := &packed{Requisite: p.runs(requirement.GetRequisite()), Preferred: p.runs(requirement.GetPreferred())}
	text, err := json.Marshal(p.topologies)
	if err != nil {
		return nil, fmt.Errorf("pack a topology: %w", err)
	}
	if len(text) <= plainBytes {
		plain.Topologies = p.topologies
		return &PackedTopology{Plain: plain}, nil
	}
	small, err := k.compress(text)
	if err != nil {
		return nil, fmt.Errorf("pack a topology: %w", err)
	}
	return &PackedTopology{Plain: plain, Gzip: small}, nil
}

func (k *TopologyPacker) compress(text []byte) ([]byte, error) {
	if last := k.last.Load(); last != nil && bytes.Equal(last.text, text) {
		return last.small, nil
	}
	var small bytes.Buffer
	writer := gzip.NewWriter(&small)
	if _, err := writer.Write(text); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	k.last.Store(&compressed{text, small.Bytes()})
	return small.Bytes(), nil
}

// Split returns the lists of a requirement and its topologies, which others may have too.
// The topologies are nil if they are few.
func (p *PackedTopology) Split() (lists *PackedTopology, topologies []byte) {
	if p == nil || p.Plain == nil || p.Gzip == nil {
		return p, nil
	}
	return &PackedTopology{Plain: p.Plain}, p.Gzip
}

// Join is the inverse of Split.
func (p *PackedTopology) Join(topologies []byte) *PackedTopology {
	if p == nil {
		return nil
	}
	return &PackedTopology{Plain: p.Plain, Gzip: topologies}
}

// packer numbers distinct topologies, those of one set of keys after the other.
type packer struct {
	topologies []packedTopologies
	sets       map[string]int // by a set of keys: its index in topologies
	at         map[string]int // by a Term: its index in its set, after number among all
	terms      []Term
}

func (p *packer) set(term Term) int {
	keys := make([]string, len(term))
	for i, segment := range term {
		keys[i] = segment.Key
	}
	id := fmt.Sprintf("%q", keys)
	if _, known := p.sets[id]; !known {
		p.sets[id] = len(p.topologies)
		p.topologies = append(p.topologies, packedTopologies{Keys: keys})
	}
	return p.sets[id]
}

// identity is unlike Term.String for values that no label could have, which a
// driver may have all the same.
func identity(term Term) string { return fmt.Sprintf("%q", term) }

func (p *packer) add(term Term) {
	if _, known := p.at[identity(term)]; known {
		return
	}
	set := &p.topologies[p.set(term)]
	p.at[identity(term)] = len(set.Values)
	values := make([]string, len(term))
	for i, segment := range term {
		values[i] = segment.Value
	}
	set.Values = append(set.Values, values)
	p.terms = append(p.terms, term)
}

func (p *packer) number() {
	before := make([]int, len(p.topologies))
	for i := 1; i < len(before); i++ {
		before[i] = before[i-1] + len(p.topologies[i-1].Values)
	}
	for _, term := range p.terms {
		p.at[identity(term)] += before[p.set(term)]
	}
}

func (p *packer) runs(list []*csi.Topology) (runs [][2]int) {
	for _, topology := range list {
		at := p.at[identity(NewTerm(topology.GetSegments()))]
		if last := len(runs) - 1; last >= 0 && runs[last][0]+runs[last][1] == at {
			runs[last][1]++
			continue
		}
		runs = append(runs, [2]int{at, 1})
	}
	return runs
}

// Requirement returns the packed requirement; nil for a nil PackedTopology. Equal
// topologies are one shared message, which must not be changed.
func (p *PackedTopology) Requirement() (*csi.TopologyRequirement, error) {
	if p == nil {
		return nil, nil
	}
	plain, err := p.unpack()
	if err != nil {
		return nil, fmt.Errorf("unpack a topology: %w", err)
	}
	var all []*csi.Topology
	for _, set := range plain.Topologies {
		for _, values := range set.Values {
			if len(values) != len(set.Keys) {
				return nil, fmt.Errorf("unpack a topology: it has %d values for %d keys", len(values), len(set.Keys))
			}
			segments := map[string]string{}
			maps.Insert(segments, zip(set.Keys, values))
			all = append(all, &csi.Topology{Segments: segments})
		}
	}
	requisite, err := unrun(all, plain.Requisite)
	if err != nil {
		return nil, err
	}
	preferred, err := unrun(all, plain.Preferred)
	return &csi.TopologyRequirement{Requisite: requisite, Preferred: preferred}, err
}

func zip(keys, values []string) func(yield func(string, string) bool) {
	return func(yield func(string, string) bool) {
		for i, key := range keys {
			if !yield(key, values[i]) {
				return
			}
		}
	}
}

func (p *PackedTopology) unpack() (*packed, error) {
	switch {
	case p.Plain == nil:
		plain := &packed{}
		return plain, p.unzip(plain)
	case p.Gzip == nil:
		return p.Plain, nil
	}
	plain := *p.Plain
	return &plain, p.unzip(&plain.Topologies)
}

func (p *PackedTopology) unzip(into any) error {
	if len(p.Gzip) == 0 {
		return errors.New("it is empty")
	}
	reader, err := gzip.NewReader(bytes.NewReader(p.Gzip))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(reader, unpackedBytes+1))
	if err != nil {
		return err
	}
	if len(text) > unpackedBytes {
		return fmt.Errorf("it has more than %d bytes", unpackedBytes)
	}
	return json.Unmarshal(text, into)
}

func unrun(all []*csi.Topology, runs [][2]int) (list []*csi.Topology, err error) {
	for _, run := range runs {
		first, count := run[0], run[1]
		if first < 0 || count < 1 || first > len(all) || count > len(all)-first {
			return nil, fmt.Errorf("unpack a topology: %d topologies from %d on, of %d", count, first, len(all))
		}
		if len(list)+count > unpackedBytes {
			return nil, errors.New("unpack a topology: it has too many topologies")
		}
		list = append(list, all[first:first+count]...)
	}
	return list, nil
}
