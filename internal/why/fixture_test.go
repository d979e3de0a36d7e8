package why

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// memoryReader is a Reader of objects in memory, given as YAML.
type memoryReader struct {
	t       *testing.T
	objects []unstructured.Unstructured
	denied  Kind
}

// memoryHost is a memoryReader that implements Host.
type memoryHost struct {
	memoryReader
	calls      map[string][]Call
	registered []string
	mounts     []Mount
}

func (h memoryHost) Calls(_ context.Context, kind, key string) ([]Call, error) {
	return h.calls[kind+" "+key], nil
}
func (h memoryHost) Mounts(context.Context, string) ([]Mount, error) { return h.mounts, nil }
func (h memoryHost) Registered(context.Context) ([]string, error)    { return h.registered, nil }

func read(t *testing.T, texts ...string) memoryReader {
	t.Helper()
	w := memoryReader{t: t}
	for _, text := range texts {
		for _, document := range strings.Split(text, "---\n") {
			var o unstructured.Unstructured
			if err := yaml.UnmarshalStrict([]byte(document), &o.Object); err != nil {
				t.Fatalf("%v:\n%s", err, document)
			}
			if len(o.Object) > 0 {
				w.objects = append(w.objects, o)
			}
		}
	}
	return w
}

func (w memoryReader) Get(_ context.Context, kind Kind, namespace, name string) ([]byte, error) {
	if kind == w.denied {
		return nil, ErrForbidden
	}
	for _, o := range w.objects {
		if o.GetKind() == kind.Name() && o.GetName() == name && o.GetNamespace() == namespace {
			return json.Marshal(o.Object)
		}
	}
	return nil, ErrNotFound
}

func (w memoryReader) List(_ context.Context, kind Kind, namespace, _ string) (found []json.RawMessage, err error) {
	if kind == w.denied {
		return nil, ErrForbidden
	}
	for _, o := range w.objects {
		if o.GetKind() != kind.Name() || (namespace != "" && o.GetNamespace() != namespace) {
			continue
		}
		data, err := json.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		found = append(found, data)
	}
	return found, nil
}

// warning is an event as the API server stores it.
func warning(kind, name, reason, message string, count int) string {
	namespace := "default"
	e := corev1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: name + "." + reason, Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name, Namespace: namespace}, Reason: reason, Message: message, Type: corev1.EventTypeWarning,
		Count: int32(count), FirstTimestamp: metav1.NewTime(began), LastTimestamp: metav1.NewTime(began.Add(time.Hour)), //nolint:gosec // small
	}
	data, err := yaml.Marshal(e)
	if err != nil {
		panic(err)
	}
	return string(data)
}

var began = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
