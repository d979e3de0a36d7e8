package claim

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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

// SourceRef is a claim's data source: an object in the claim's own namespace.
type SourceRef struct {
	Kind SourceKind
	Name string
}

// ErrPopulated is in SourceOf's error for a source that CSI does not know: a
// volume populator makes such a volume (KEP 1495).
var ErrPopulated = errors.New("left to a volume populator")

// SourceOf reads dataSource, and dataSourceRef if that is not set. A source that CSI
// cannot serve (a populator's kind, another namespace) is an error.
func SourceOf(pvc *corev1.PersistentVolumeClaim) (SourceRef, error) {
	var field, group, kind, name string
	switch {
	case pvc.Spec.DataSource != nil:
		source := pvc.Spec.DataSource
		field, group, kind, name = "spec.dataSource", deref(source.APIGroup), source.Kind, source.Name
	case pvc.Spec.DataSourceRef != nil:
		source := pvc.Spec.DataSourceRef
		field, group, kind, name = "spec.dataSourceRef", deref(source.APIGroup), source.Kind, source.Name
		if namespace := deref(source.Namespace); namespace != "" && namespace != pvc.Namespace {
			return SourceRef{}, fmt.Errorf("%s: %s.namespace: a source in another namespace (%q) is not supported",
				Describe(pvc), field, namespace)
		}
	default:
		return SourceRef{}, nil
	}
	if name == "" {
		return SourceRef{}, fmt.Errorf("%s: %s.name is missing", Describe(pvc), field)
	}
	switch {
	case kind == "PersistentVolumeClaim" && group == "":
		return SourceRef{Kind: SourceClaim, Name: name}, nil
	case kind == "VolumeSnapshot" && group == SnapshotGroup:
		return SourceRef{Kind: SourceSnapshot, Name: name}, nil
	}
	err := fmt.Errorf("%s: %s: kind %q of group %q is neither a PersistentVolumeClaim nor a VolumeSnapshot of group %s",
		Describe(pvc), field, kind, group, SnapshotGroup)
	if kind == "VolumeSnapshot" {
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
