package api

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// target is the object or list that a path of the Kubernetes API names.
type target struct {
	schema.GroupVersion
	namespace, resource, name, subresource string
}

// parsePath reads /api/VERSION/… and /apis/GROUP/VERSION/…, where … is
// [namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]].
func parsePath(path string) (target, bool) {
	words := strings.Split(strings.TrimPrefix(path, "/"), "/")
	var t target
	switch {
	case len(words) >= 3 && words[0] == "api":
		t.Version, words = words[1], words[2:]
	case len(words) >= 4 && words[0] == "apis" && words[1] != "":
		t.Group, t.Version, words = words[1], words[2], words[3:]
	default:
		return target{}, false
	}
	if len(words) >= 3 && words[0] == "namespaces" {
		t.namespace, words = words[1], words[2:]
		if t.namespace == "" {
			return target{}, false
		}
	}
	for i, word := range []*string{&t.resource, &t.name, &t.subresource} {
		if i < len(words) {
			*word = words[i]
		}
	}
	// An empty word would be a name that no object can have.
	full := t.resource != "" && (len(words) < 2 || t.name != "") && (len(words) < 3 || t.subresource != "")
	return t, full && len(words) <= 3
}

// EventKind is the kind of the events, which the server makes from the journal.
func EventKind() store.Kind {
	return store.NewKind(corev1.SchemeGroupVersion.WithKind("Event"), "events", true,
		func() store.Object { return new(corev1.Event) })
}

// Kinds are served by the server.
func Kinds() []store.Kind { return append(store.Kinds(), EventKind()) }

// kind finds the kind of a target.
func (t target) kind() (store.Kind, bool) {
	for _, kind := range Kinds() {
		if kind.Resource == t.resource && kind.GroupVersion() == t.GroupVersion {
			return kind, true
		}
	}
	return store.Kind{}, false
}

// pathOf is the path of a kind's objects, or of one of them.
func pathOf(kind store.Kind, namespace, name string) string {
	path := "/api/" + kind.Version
	if kind.Group != "" {
		path = "/apis/" + kind.Group + "/" + kind.Version
	}
	if kind.Namespaced && namespace != "" {
		path += "/namespaces/" + namespace
	}
	path += "/" + kind.Resource
	if name != "" {
		path += "/" + name
	}
	return path
}

// objectPath is pathOf one object. A name that would be another path, such as
// "..", is refused: it is one that no object has.
func objectPath(kind store.Kind, namespace, name string) (string, error) {
	if err := checkSegment("name", name); err != nil {
		return "", err
	}
	return pathOf(kind, namespace, name), nil
}

func checkSegment(what, text string) error {
	if text == "" {
		return fmt.Errorf("the %s is empty", what)
	}
	if problems := content.IsPathSegmentName(text); len(problems) > 0 {
		return fmt.Errorf("%q is not a %s: it %s", text, what, strings.Join(problems, ", "))
	}
	return nil
}
