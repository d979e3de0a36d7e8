package claim

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// GatewayGroup is the API group of ReferenceGrant.
const GatewayGroup = "gateway.networking.k8s.io"

// ReferenceGrant is Gateway API's kind, which lets objects of other namespaces refer to
// objects of its own. Its versions v1 and v1beta1 have the same fields. The types are
// here because the module of Gateway API is large.
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

// Allows reports whether the grant lets the claims of a namespace be made of a source in
// the grant's namespace.
func (g *ReferenceGrant) Allows(namespace string, source SourceRef) bool {
	group, kind := source.groupKind()
	return g.Namespace == source.Namespace &&
		slices.Contains(g.Spec.From, ReferenceGrantFrom{Kind: claimKind, Namespace: namespace}) &&
		slices.ContainsFunc(g.Spec.To, func(to ReferenceGrantTo) bool {
			return to.Group == group && to.Kind == kind && (deref(to.Name) == "" || *to.Name == source.Name)
		})
}

// DeepCopyObject makes the grant a runtime.Object.
func (g *ReferenceGrant) DeepCopyObject() runtime.Object { return g.deepCopy() }

func (g *ReferenceGrant) deepCopy() *ReferenceGrant {
	copied := &ReferenceGrant{TypeMeta: g.TypeMeta, ObjectMeta: *g.ObjectMeta.DeepCopy(),
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
	copied := &ReferenceGrantList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].deepCopy())
	}
	return copied
}
