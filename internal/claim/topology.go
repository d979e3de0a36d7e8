package claim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// Segment is one key of a topology and its value.
type Segment struct {
	Key, Value string
}

// Term is a topology from which volumes are accessible: a node is in it if it has
// all of the segments. Segments are sorted by key and no key comes twice. Every node
// is in the empty Term. A Term is shared once made: never change one.
type Term []Segment

// NewTerm makes the Term of a set of segments.
func NewTerm(segments map[string]string) Term {
	term := make(Term, 0, len(segments))
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		term = append(term, Segment{Key: key, Value: segments[key]})
	}
	return term
}

// NodeTerm picks the values of a driver's topology keys from a node's labels.
// missing is the first key without a label, if there is one; keys must be sorted.
func NodeTerm(keys []string, labels map[string]string) (term Term, missing string) {
	term = make(Term, 0, len(keys))
	for _, key := range keys {
		value, labelled := labels[key]
		if !labelled {
			return nil, key
		}
		term = append(term, Segment{Key: key, Value: value})
	}
	return term, ""
}

// Map is the Term as Kubernetes and CSI write it, a new map each time.
func (t Term) Map() map[string]string {
	segments := make(map[string]string, len(t))
	for _, segment := range t {
		segments[segment.Key] = segment.Value
	}
	return segments
}

// Topology is the Term in CSI.
func (t Term) Topology() *csi.Topology { return &csi.Topology{Segments: t.Map()} }

// Compare orders Terms: fewer segments first, then by key and value of each.
// It is the order that drivers see from external-provisioner.
func (t Term) Compare(other Term) int {
	if byLength := cmp.Compare(len(t), len(other)); byLength != 0 {
		return byLength
	}
	return slices.CompareFunc(t, other, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
	})
}

// Within reports whether every segment of the Term is one of other's.
func (t Term) Within(other Term) bool {
	at := 0
	for _, segment := range t {
		for at < len(other) && other[at].Key < segment.Key {
			at++
		}
		if at == len(other) || other[at] != segment {
			return false
		}
	}
	return true
}

// String is the Term in messages, and its identity: no two Terms share it.
// Neither "=" nor "," can be in a label's key or value.
func (t Term) String() string {
	var text strings.Builder
	for i, segment := range t {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(segment.Key)
		text.WriteByte('=')
		text.WriteString(segment.Value)
	}
	return text.String()
}

// SortTerms sorts Terms in place and takes duplicates out.
func SortTerms(terms []Term) []Term {
	slices.SortFunc(terms, Term.Compare)
	return slices.CompactFunc(terms, func(a, b Term) bool { return a.Compare(b) == 0 })
}

// maximumAllowedTerms limits the number of terms of a class's flattened allowedTopologies:
// every CreateVolume has all terms, and a driver accepts 4 MiB at most.
const maximumAllowedTerms = 4096

// FlattenAllowed multiplies the allowedTopologies of a class out: the values of
// each term's expressions combined, sorted, without duplicates. A term without
// expressions, or with one without values, allows nothing (TopologySelectorTerm:
// "A null or empty topology selector term matches no objects").
func FlattenAllowed(allowed []corev1.TopologySelectorTerm) ([]Term, error) {
	var flat []Term
	for _, selector := range allowed {
		if len(selector.MatchLabelExpressions) == 0 {
			continue
		}
		combined := []map[string]string{{}}
		for _, expression := range selector.MatchLabelExpressions {
			if len(combined)*len(expression.Values) > maximumAllowedTerms {
				return nil, fmt.Errorf("allowedTopologies: one term multiplies to more than %d combinations; name fewer values",
					maximumAllowedTerms)
			}
			combined = multiply(combined, expression)
		}
		for _, segments := range combined {
			flat = append(flat, NewTerm(segments))
		}
	}
	if len(flat) > maximumAllowedTerms {
		return nil, fmt.Errorf("allowedTopologies: %d combinations are more than %d; name fewer values",
			len(flat), maximumAllowedTerms)
	}
	return SortTerms(flat), nil
}

// multiply drops a combination that would give one key two values: no node has both.
func multiply(combined []map[string]string, expression corev1.TopologySelectorLabelRequirement) []map[string]string {
	var product []map[string]string
	for _, segments := range combined {
		for _, value := range expression.Values {
			if earlier, given := segments[expression.Key]; given && earlier != value {
				continue
			}
			extended := maps.Clone(segments)
			extended[expression.Key] = value
			product = append(product, extended)
		}
	}
	return product
}
