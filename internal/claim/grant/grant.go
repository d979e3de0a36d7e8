// Package grant has the types of Gateway API's ReferenceGrant, whose module is large.
package grant

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Group is the API group of ReferenceGrant.
const Group = "gateway.networking.k8s.io"

// ReferenceGrant is Gateway API's kind, which lets objects of other namespaces refer to
// objects of its own. Its versions v1 and v1beta1 have the same fields.
type ReferenceGrant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ReferenceGrantSpec `json:"spec,omitempty"`
}

// ReferenceGrantSpec allows each of From to refer to each of To.
type ReferenceGrantSpec struct {
	From []ReferenceGrantFrom `json:"from"`
	To   []ReferenceGrantTo   `json:"to"`
}

// ReferenceGrantFrom is a kind of objects in a namespace; the core group is "".
type ReferenceGrantFrom struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
}

// ReferenceGrantTo is a kind of objects in the grant's namespace, or the one object of
// that kind that it names.
type ReferenceGrantTo struct {
	Group string  `json:"group"`
	Kind  string  `json:"kind"`
	Name  *string `json:"name,omitempty"`
}

// ReferenceGrantList is a list of ReferenceGrants.
type ReferenceGrantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ReferenceGrant `json:"items"`
}

// Allows reports whether the grant lets objects of a kind and namespace refer to an
// object in the grant's namespace. to has the name of that object.
func (g *ReferenceGrant) Allows(from ReferenceGrantFrom, to ReferenceGrantTo) bool {
	return slices.Contains(g.Spec.From, from) && slices.ContainsFunc(g.Spec.To, func(allowed ReferenceGrantTo) bool {
		return allowed.Group == to.Group && allowed.Kind == to.Kind &&
			(allowed.Name == nil || *allowed.Name == "" || *allowed.Name == *to.Name)
	})
}

// DeepCopyObject makes the grant a runtime.Object.
func (g *ReferenceGrant) DeepCopyObject() runtime.Object { return g.deepCopy() }

func (g *ReferenceGrant) deepCopy() *ReferenceGrant {
	copied := &ReferenceGrant{TypeMeta: g.TypeMeta, ObjectMeta: *g.DeepCopy(),
		Spec: ReferenceGrantSpec{From: slices.Clone(g.Spec.From), To: slices.Clone(g.Spec.To)}}
	for i, to := range copied.Spec.To {
		if to.Name != nil {
			name := *to.Name
			copied.Spec.To[i].Name = &name
		}
	}
	return copied
}

// DeepCopyObject makes the list a runtime.Object.
func (l *ReferenceGrantList) DeepCopyObject() runtime.Object {
	copied := &ReferenceGrantList{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].deepCopy())
	}
	return copied
}
