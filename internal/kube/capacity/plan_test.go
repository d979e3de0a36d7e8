package capacity

import (
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func zone(value string) claim.Term { return claim.NewTerm(map[string]string{"zone": value}) }

func TestPlan_changedNamesOnlyWhatIsNew(t *testing.T) {
	before := planFor([]*storagev1.StorageClass{class("one")}, []claim.Term{zone("a"), zone("b")})
	if n := len(before.changed(nil)); n != 2 {
		t.Errorf("%d questions of a first plan", n)
	}
	for name, c := range map[string]struct {
		classes  []*storagev1.StorageClass
		segments []claim.Term
		want     int
	}{
		"the same":                 {[]*storagev1.StorageClass{class("one")}, []claim.Term{zone("a"), zone("b")}, 0},
		"a segment more":           {[]*storagev1.StorageClass{class("one")}, []claim.Term{zone("a"), zone("b"), zone("c")}, 1},
		"a segment less":           {[]*storagev1.StorageClass{class("one")}, []claim.Term{zone("a")}, 0},
		"a class of the same kind": {[]*storagev1.StorageClass{class("one"), class("two")}, []claim.Term{zone("a"), zone("b")}, 2},
		"a class of another kind":  {[]*storagev1.StorageClass{class("one"), class("two", "type", "hdd")}, []claim.Term{zone("a"), zone("b")}, 2},
	} {
		if got := planFor(c.classes, c.segments).changed(before); len(got) != c.want {
			t.Errorf("%s: %d questions are new", name, len(got))
		}
	}
}

func TestGoalOfObject_onlyOursServeAGoal(t *testing.T) {
	segment := claim.NewTerm(map[string]string{"zone": "a", "rack": "1"})
	for name, c := range map[string]struct {
		selector *metav1.LabelSelector
		want     string
	}{
		"a segment":    {selectorOf(segment), goalOf("one", segment)},
		"everywhere":   {selectorOf(nil), goalOf("one", nil)},
		"nowhere":      {nil, ""},
		"empty labels": {&metav1.LabelSelector{MatchLabels: map[string]string{}}, goalOf("one", nil)},
		"expressions":  {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpExists}}}, ""},
	} {
		if got := goalOfObject(&storagev1.CSIStorageCapacity{StorageClassName: "one", NodeTopology: c.selector}); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestDigest_differsForDifferentParameters(t *testing.T) {
	seen := map[string]map[string]string{}
	for _, parameters := range []map[string]string{
		nil, {"a": "b"}, {"a": ""}, {"": "a"}, {"a": "b", "c": "d"}, {"a": `b","c"="d`}, {"ab": ""},
	} {
		digest := digestOf(parameters)
		if other, taken := seen[digest]; taken {
			t.Errorf("%v and %v share a question", parameters, other)
		}
		seen[digest] = parameters
	}
	if digestOf(nil) != digestOf(map[string]string{}) {
		t.Error("no parameters are not one kind")
	}
}

// BenchmarkCapacity_tenThousandObjects measures a change of the nodes and of a
// volume with 5,000 segments, one a node, and two classes.
func BenchmarkCapacity_tenThousandObjects(b *testing.B) {
	var segments []claim.Term
	for i := range 5000 {
		segments = append(segments, zone(fmt.Sprintf("node-%04d.example.com", i)))
	}
	classes := []*storagev1.StorageClass{class("one"), class("two", "type", "hdd")}
	b.Run("plan", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			planFor(classes, segments)
		}
	})
	driver := csidriver.New(driverName)
	controller := fast(apiserver.New(b, driver).Env, Options{})
	controller.plan = planFor(classes, segments)
	made := []*csi.Topology{{Segments: segments[77].Map()}}
	b.Run("created", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			controller.Created("one", made)
		}
	})
	gone := volume(segments[78][0].Value)
	b.Run("deleted", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			controller.Deleted(gone)
		}
	})
}
