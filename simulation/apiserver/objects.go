package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"
)

// object is one object as JSON has it.
type object map[string]any

func decode(text []byte) (object, error) {
	var o object
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber() // a float64 cannot represent nanoseconds since 1970
	if err := numbers.Decode(&o); err != nil {
		return nil, fmt.Errorf("decode an object: %w", err)
	}
	return o, nil
}

func (o object) meta() object {
	if m, ok := o["metadata"].(map[string]any); ok {
		return m
	}
	m := map[string]any{}
	o["metadata"] = m
	return m
}

func (o object) text(field string) string {
	text, _ := o[field].(string)
	return text
}

func (o object) name() string      { return o.meta().text("name") }
func (o object) namespace() string { return o.meta().text("namespace") }

func (o object) version() uint64 {
	version, _ := strconv.ParseUint(o.meta().text("resourceVersion"), 10, 64)
	return version
}

func (o object) finalizers() int {
	list, _ := o.meta()["finalizers"].([]any)
	return len(list)
}

// addsFinalizers reports whether there is a finalizer that the old object lacks.
func (o object) addsFinalizers(old object) bool {
	list, _ := o.meta()["finalizers"].([]any)
	before, _ := old.meta()["finalizers"].([]any)
	return slices.ContainsFunc(list, func(f any) bool { return !slices.Contains(before, f) })
}

// clone is a deep copy.
func (o object) clone() object {
	copied, _ := cloned(map[string]any(o)).(map[string]any)
	return copied
}

// cloned is a deep copy of what decode made.
func cloned(value any) any {
	switch v := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(v))
		for field, value := range v {
			copied[field] = cloned(value)
		}
		return copied
	case []any:
		copied := make([]any, len(v))
		for i, value := range v {
			copied[i] = cloned(value)
		}
		return copied
	}
	return value // strings, numbers and truths do not change
}

// sameAs reports whether objects differ in their versions at most.
func (o object) sameAs(other object) bool {
	a, b := maps.Clone(o), maps.Clone(other)
	for _, one := range []object{a, b} {
		meta := maps.Clone(map[string]any(one.meta()))
		delete(meta, "resourceVersion")
		one["metadata"] = meta
	}
	return reflect.DeepEqual(a, b)
}

// matches reports whether an object's labels match a selector. A
// selector that cannot be read matches nothing.
func (o object) matches(selector string) bool {
	if selector == "" {
		return true
	}
	wanted, err := labels.Parse(selector)
	if err != nil {
		return false
	}
	return wanted.Matches(o.labels())
}

func (o object) labels() labels.Set {
	given, _ := o.meta()["labels"].(map[string]any)
	set := labels.Set{}
	for key, value := range given {
		set[key], _ = value.(string)
	}
	return set
}

// at is a copy of the object with another version.
func (o object) at(version uint64) object {
	copied := o.clone()
	copied.meta()["resourceVersion"] = strconv.FormatUint(version, 10)
	return copied
}

// keep takes from an update what its target may not change: the status for an
// ordinary write, all but the status for one of the status subresource. (Custom
// resources also keep their metadata then; Kubernetes' own kinds do not.)
func (o object) keep(old object, subresource string, custom, hasStatus bool) {
	if subresource == "status" {
		for field := range maps.Clone(o) {
			if field != "status" && field != "metadata" && field != "kind" && field != "apiVersion" {
				delete(o, field)
			}
		}
		for field, value := range old {
			if field != "status" && (field != "metadata" || custom) {
				o[field] = cloned(value)
			}
		}
	} else if hasStatus {
		delete(o, "status")
		if status, found := old["status"]; found {
			o["status"] = cloned(status)
		}
	}
	for _, field := range []string{"uid", "creationTimestamp", "deletionTimestamp", "name", "namespace"} {
		if value, found := old.meta()[field]; found {
			o.meta()[field] = value
		} else {
			delete(o.meta(), field)
		}
	}
}
