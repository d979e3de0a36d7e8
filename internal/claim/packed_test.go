package claim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func nodesRequirement(count, first int) *csi.TopologyRequirement {
	var terms []Term
	for i := range count {
		terms = append(terms, term(
			"topology.kubernetes.io/zone", fmt.Sprintf("eu-central-1%c", 'a'+i%3),
			"topology.d.example/node", fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i*7919%256, i*104729%256, i%251)))
	}
	all := NewTerms(SortTerms(terms))
	return &csi.TopologyRequirement{Requisite: all.From(0), Preferred: all.From(first)}
}

func repacked(t interface{ Fatal(...any) }, requirement *csi.TopologyRequirement) (*csi.TopologyRequirement, int) {
	packed, err := (&TopologyPacker{}).Pack(requirement)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(packed)
	if err != nil {
		t.Fatal(err)
	}
	read := &PackedTopology{}
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatal(err)
	}
	got, err := read.Requirement()
	if err != nil {
		t.Fatal(err)
	}
	return got, len(text)
}

func TestTopologyPacker_ofManyTermsIsSmall(t *testing.T) {
	want := nodesRequirement(2000, 1234)
	got, size := repacked(t, want)
	if !proto.Equal(got, want) {
		t.Error("what is unpacked differs")
	}
	if size > 32<<10 {
		t.Errorf("2,000 topologies take %d bytes", size)
	}
}

func TestTopologyPacker_ofOneTermIsReadable(t *testing.T) {
	packed, err := (&TopologyPacker{}).Pack(Here(map[string]string{"node": "n1"}))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(packed)
	if !strings.Contains(string(text), `"keys":["node"],"values":[["n1"]]`) {
		t.Errorf("%s", text)
	}
	if none, err := (&TopologyPacker{}).Pack(nil); none != nil || err != nil {
		t.Errorf("of none: %v, %v", none, err)
	}
}

func TestTopologyPacker_givesBackWhatWasPacked(t *testing.T) {
	topology := rapid.Custom(func(t *rapid.T) *csi.Topology {
		return &csi.Topology{Segments: rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c=d"}), rapid.SampledFrom([]string{"", "1", "2", "x,a=1"}), 0, 3).Draw(t, "segments")}
	})
	rapid.Check(t, func(t *rapid.T) {
		want := &csi.TopologyRequirement{
			Requisite: rapid.SliceOfN(topology, 0, 20).Draw(t, "requisite"), Preferred: rapid.SliceOfN(topology, 0, 20).Draw(t, "preferred"),
		}
		got, _ := repacked(t, want)
		same := func(a, b *csi.Topology) bool { return NewTerm(a.GetSegments()).Compare(NewTerm(b.GetSegments())) == 0 }
		if !slices.EqualFunc(got.GetRequisite(), want.GetRequisite(), same) || !slices.EqualFunc(got.GetPreferred(), want.GetPreferred(), same) {
			t.Fatalf("%v became %v", want, got)
		}
	})
}

// TestTopologyPacker_keepsNothingOfAnotherRequirement: requirements with other topologies
// follow each other.
func TestTopologyPacker_keepsNothingOfAnotherRequirement(t *testing.T) {
	packer := &TopologyPacker{}
	for _, count := range []int{100, 100, 200, 100, 1} {
		want := nodesRequirement(count, count/2)
		packed, err := packer.Pack(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := packed.Requirement(); err != nil || !proto.Equal(got, want) {
			t.Errorf("what is unpacked of %d topologies differs; %v", count, err)
		}
	}
}

func BenchmarkTopologyPacker(b *testing.B) {
	requirement := nodesRequirement(5000, 1234)
	packer := &TopologyPacker{}
	for b.Loop() {
		if _, err := packer.Pack(requirement); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzPackedTopology(f *testing.F) {
	f.Add([]byte(`{"plain":{"places":[{"keys":["a"],"values":[["1"]]}],"requisite":[[0,1]]}}`))
	f.Add([]byte(`{"plain":{"places":[],"requisite":[[9223372036854775807,1]]}}`))
	f.Add([]byte(`{"gzip":"AAAA"}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		read := &PackedTopology{}
		if json.Unmarshal(text, read) == nil {
			_, _ = read.Requirement() // a hand may have been at it: it must not panic
		}
	})
}
