package claim

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// term makes a Term of pairs: key, value, key, value.
func term(pairs ...string) Term {
	segments := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		segments[pairs[i]] = pairs[i+1]
	}
	return NewTerm(segments)
}

func selector(expressions ...corev1.TopologySelectorLabelRequirement) corev1.TopologySelectorTerm {
	return corev1.TopologySelectorTerm{MatchLabelExpressions: expressions}
}

func in(key string, values ...string) corev1.TopologySelectorLabelRequirement {
	return corev1.TopologySelectorLabelRequirement{Key: key, Values: values}
}

func texts(terms []Term) []string {
	var all []string
	for _, t := range terms {
		all = append(all, t.String())
	}
	return all
}

func TestTerm_isSortedByKey(t *testing.T) {
	if got := term("zone", "a", "rack", "7").String(); got != "rack=7,zone=a" {
		t.Errorf("got %s", got)
	}
}

func TestSortTerms_shortOnesFirstAndEachOnce(t *testing.T) {
	got := SortTerms([]Term{term("zone", "b"), term("rack", "1", "zone", "a"), term("zone", "a"), term("rack", "9"), term("zone", "b"), term()})
	want := []string{"", "rack=9", "zone=a", "zone=b", "rack=1,zone=a"}
	if diff := cmp.Diff(want, texts(got)); diff != "" {
		t.Error(diff)
	}
}

func TestTerm_within(t *testing.T) {
	for _, c := range []struct {
		inner, outer Term
		want         bool
	}{
		{term(), term(), true},
		{term(), term("zone", "a"), true},
		{term("zone", "a"), term(), false},
		{term("zone", "a"), term("zone", "a"), true},
		{term("zone", "a"), term("zone", "b"), false},
		{term("zone", "a"), term("rack", "1", "zone", "a"), true},
		{term("rack", "1"), term("rack", "1", "zone", "a"), true},
		{term("rack", "1", "zone", "a"), term("zone", "a"), false},
		{term("host", "x"), term("rack", "1", "zone", "a"), false},
	} {
		if got := c.inner.Within(c.outer); got != c.want {
			t.Errorf("%q within %q: got %v", c.inner, c.outer, got)
		}
	}
}

func TestFlattenAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		allowed []corev1.TopologySelectorTerm
		want    []string
	}{
		"nothing":                {nil, nil},
		"one key, two values":    {[]corev1.TopologySelectorTerm{selector(in("zone", "b", "a"))}, []string{"zone=a", "zone=b"}},
		"two keys, two by two":   {[]corev1.TopologySelectorTerm{selector(in("zone", "a", "b"), in("rack", "1", "2"))}, []string{"rack=1,zone=a", "rack=1,zone=b", "rack=2,zone=a", "rack=2,zone=b"}},
		"two selector terms":     {[]corev1.TopologySelectorTerm{selector(in("zone", "b")), selector(in("rack", "1"))}, []string{"rack=1", "zone=b"}},
		"duplicate terms":        {[]corev1.TopologySelectorTerm{selector(in("zone", "a")), selector(in("zone", "a", "a"))}, []string{"zone=a"}},
		"no expressions":         {[]corev1.TopologySelectorTerm{selector(), selector(in("zone", "a"))}, []string{"zone=a"}},
		"only empty terms":       {[]corev1.TopologySelectorTerm{selector(), selector(in("zone"))}, nil},
		"expression without any": {[]corev1.TopologySelectorTerm{selector(in("zone"), in("rack", "1"))}, nil},
		"one key, two values at once": {[]corev1.TopologySelectorTerm{selector(in("zone", "a", "b"), in("zone", "b", "c"))},
			[]string{"zone=b"}},
	} {
		got, err := FlattenAllowed(c.allowed)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, texts(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestFlattenAllowed_refusesWhatNoDriverTakes(t *testing.T) {
	var ten []string
	for i := range 10 {
		ten = append(ten, fmt.Sprint(i))
	}
	var keys []corev1.TopologySelectorLabelRequirement
	for i := range 12 {
		keys = append(keys, in(fmt.Sprint("key", i), ten...))
	}
	if _, err := FlattenAllowed([]corev1.TopologySelectorTerm{selector(keys...)}); err == nil {
		t.Error("10^12 combinations were taken")
	}
	var many []corev1.TopologySelectorTerm
	for range maximumAllowedTerms + 1 {
		many = append(many, selector(in("zone", "a")))
	}
	if _, err := FlattenAllowed(many); err == nil {
		t.Error("too many terms were taken")
	}
}

func TestSpread_asExternalProvisioner(t *testing.T) {
	for _, c := range []struct {
		claim       string
		hash, index uint32
		mod3, mod4  int
	}{
		{"data-web-0", 1181096325, 0, 0, 1},
		{"data-web-1", 1181096325, 1, 1, 2},
		{"data-web-2", 1181096325, 2, 2, 3},
		{"logs-web-1", 1181096325, 1, 1, 2},
		{"data", 1959470013, 0, 0, 1},
		{"claim-7", 1216680299, 7, 0, 2},
		{"data-my-db-3", 1836525763, 3, 1, 2},
		{"data-web--1", 2166136261, 1, 2, 2},
		{"data-web-4294967296", 2450562679, 0, 1, 3},
	} {
		hash, index := spreadHash(c.claim)
		if hash != c.hash || index != c.index {
			t.Errorf("%s: hash %d, index %d", c.claim, hash, index)
		}
		if got := [2]int{Spread(c.claim, 3), Spread(c.claim, 4)}; got != [2]int{c.mod3, c.mod4} {
			t.Errorf("%s: of three and of four: %v", c.claim, got)
		}
		if Spread(c.claim, 1) != 0 {
			t.Errorf("%s: one term is not the first", c.claim)
		}
	}
}

func TestSpread_theSumWraps(t *testing.T) {
	// 4294967295 + 1181096325 = 1181096324 (mod 2^32)
	if got := Spread("data-web-4294967295", 1000); got != 324 {
		t.Errorf("got %d", got)
	}
}

func randomTerm(t *rapid.T) Term {
	segments := rapid.MapOfN(rapid.SampledFrom([]string{"host", "rack", "zone"}), rapid.SampledFrom([]string{"", "1", "2"}), 0, 3).Draw(t, "segments")
	return NewTerm(segments)
}

// TestTerm_orderAndSubset compares with the plain definitions.
func TestTerm_orderAndSubset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := randomTerm(t), randomTerm(t), randomTerm(t)
		if (a.Compare(b) == 0) != (a.String() == b.String()) {
			t.Fatalf("%q and %q: the order and the text disagree on equality", a, b)
		}
		if a.Compare(b) != -b.Compare(a) {
			t.Fatalf("%q and %q: the order is not antisymmetric", a, b)
		}
		if a.Compare(b) <= 0 && b.Compare(c) <= 0 && a.Compare(c) > 0 {
			t.Fatalf("%q, %q, %q: the order is not transitive", a, b, c)
		}
		plain := true
		for key, value := range a.Map() {
			other, has := b.Map()[key]
			plain = plain && has && other == value
		}
		if a.Within(b) != plain {
			t.Fatalf("%q within %q: got %v", a, b, a.Within(b))
		}
	})
}

func TestTerms_firstWithinIsTheFirstOfTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := SortTerms(rapid.SliceOfN(rapid.Custom(randomTerm), 0, 20).Draw(t, "terms"))
		node := randomTerm(t)
		want := slices.IndexFunc(list, func(term Term) bool { return term.Within(node) })
		if got := NewTerms(list).FirstWithin(node); got != want {
			t.Fatalf("%q in %q: got %d, want %d", node, texts(list), got, want)
		}
	})
}

func FuzzSpread(f *testing.F) {
	f.Add("data-web-1", 3)
	f.Add("-", 1)
	f.Add("a-00000000000000000001", 7)
	f.Fuzz(func(t *testing.T, name string, n int) {
		if n < 1 {
			return
		}
		if got := Spread(name, n); got < 0 || got >= n {
			t.Errorf("Spread(%q, %d) = %d", name, n, got)
		}
	})
}
