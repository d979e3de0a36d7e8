package api

import (
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// filter selects objects of a kind.
type filter struct {
	namespace, name string
	labels          labels.Selector
	fields          fields.Selector
}

// parseFilter reads labelSelector and fieldSelector.
func parseFilter(t target, kind store.Kind, query url.Values) (filter, error) {
	f := filter{namespace: t.namespace, name: t.name}
	var err error
	if f.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return f, badRequest("labelSelector: %v", err)
	}
	if f.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return f, badRequest("fieldSelector: %v", err)
	}
	known := fieldsOf(kind.New())
	for _, requirement := range f.fields.Requirements() {
		if !known.Has(requirement.Field) {
			return f, badRequest("fieldSelector: %s has no field %q that can be selected by", kind.Resource, requirement.Field)
		}
	}
	return f, nil
}

// fieldsOf are the fields that objects are selected by.
func fieldsOf(object store.Object) fields.Set {
	set := fields.Set{"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace()}
	if event, ok := object.(*corev1.Event); ok {
		set["involvedObject.kind"] = event.InvolvedObject.Kind
		set["involvedObject.name"] = event.InvolvedObject.Name
		set["involvedObject.namespace"] = event.InvolvedObject.Namespace
		set["involvedObject.uid"] = string(event.InvolvedObject.UID)
		set["reason"] = event.Reason
		set["type"] = event.Type
	}
	return set
}

// selectsKey reports whether the filter selects an object by its key and fields,
// which never change, unlike its labels.
func (f filter) selectsKey(object store.Object) bool {
	return (f.namespace == "" || f.namespace == object.GetNamespace()) && (f.name == "" || f.name == object.GetName()) &&
		f.fields.Matches(fieldsOf(object))
}

func (f filter) matches(object store.Object) bool {
	return f.selectsKey(object) && f.labels.Matches(labels.Set(object.GetLabels()))
}
