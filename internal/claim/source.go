package claim

import (
	"cmp"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim/grant"
)

// SnapshotGroup is the API group of VolumeSnapshot.
const SnapshotGroup = "snapshot.storage.k8s.io"

// SourceKind is the kind of a claim's data source.
type SourceKind int

// The data sources that CSI knows.
const (
	SourceNone SourceKind = iota
	SourceClaim
	SourceSnapshot
)

// Kinds of sources.
const (
	claimKind    = "PersistentVolumeClaim"
	snapshotKind = "VolumeSnapshot"
)

// SourceRef is a claim's data source. An object of another namespace than the claim's
// needs a ReferenceGrant (lifecycle.CheckGrant).
type SourceRef struct {
	Kind            SourceKind
	Namespace, Name string
}

// Key is "namespace/name".
func (s SourceRef) Key() string { return s.Namespace + "/" + s.Name }

func (s SourceRef) groupKind() (group, kind string) {
	if s.Kind == SourceSnapshot {
		return SnapshotGroup, snapshotKind
	}
	return "", claimKind
}

// GrantedBy reports whether a grant lets the claims of a namespace be made of the source.
func (s SourceRef) GrantedBy(g *grant.ReferenceGrant, namespace string) bool {
	group, kind := s.groupKind()
	return g.Namespace == s.Namespace && g.Allows(
		grant.ReferenceGrantFrom{Kind: claimKind, Namespace: namespace},
		grant.ReferenceGrantTo{Group: group, Kind: kind, Name: &s.Name})
}

// String describes the source in errors, such as: VolumeSnapshot "ns/name".
func (s SourceRef) String() string {
	_, kind := s.groupKind()
	return fmt.Sprintf("%s %q", kind, s.Key())
}

// ErrPopulated is in SourceOf's error for a source that CSI does not know: a
// volume populator makes such a volume (KEP 1495).
var ErrPopulated = errors.New("left to a volume populator")

// SourceOf reads dataSource, and dataSourceRef if that is not set. A source that CSI
// cannot serve, such as a populator's kind, is an error.
func SourceOf(pvc *corev1.PersistentVolumeClaim) (SourceRef, error) {
	var field, group, kind, name string
	namespace := pvc.Namespace
	switch {
	case pvc.Spec.DataSource != nil:
		source := pvc.Spec.DataSource
		field, group, kind, name = "spec.dataSource", deref(source.APIGroup), source.Kind, source.Name
	case pvc.Spec.DataSourceRef != nil:
		source := pvc.Spec.DataSourceRef
		field, group, kind, name = "spec.dataSourceRef", deref(source.APIGroup), source.Kind, source.Name
		namespace = cmp.Or(deref(source.Namespace), namespace)
	default:
		return SourceRef{}, nil
	}
	if name == "" {
		return SourceRef{}, fmt.Errorf("%s: %s.name is missing", Describe(pvc), field)
	}
	switch {
	case kind == claimKind && group == "":
		return SourceRef{Kind: SourceClaim, Namespace: namespace, Name: name}, nil
	case kind == snapshotKind && group == SnapshotGroup:
		return SourceRef{Kind: SourceSnapshot, Namespace: namespace, Name: name}, nil
	}
	err := fmt.Errorf("%s: %s: kind %q of group %q is neither a PersistentVolumeClaim nor a VolumeSnapshot of group %s",
		Describe(pvc), field, kind, group, SnapshotGroup)
	if kind == snapshotKind {
		return SourceRef{}, err
	}
	return SourceRef{}, &populatedError{err}
}

// populatedError has a text for clusters without populators.
type populatedError struct{ error }

func (e *populatedError) Is(target error) bool { return target == ErrPopulated }

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
