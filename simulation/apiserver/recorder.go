package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// recorder is a record.EventRecorder that remembers.
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) Event(o runtime.Object, kind, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := ""
	if accessor, err := meta.Accessor(o); err == nil {
		name = strings.TrimPrefix(accessor.GetNamespace()+"/"+accessor.GetName(), "/")
	}
	r.events = append(r.events, fmt.Sprintf("%s %s %s: %s", kind, reason, name, message))
}

func (r *recorder) Eventf(o runtime.Object, kind, reason, format string, arguments ...any) {
	r.Event(o, kind, reason, fmt.Sprintf(format, arguments...))
}

func (r *recorder) AnnotatedEventf(
	o runtime.Object, _ map[string]string, kind, reason, format string, arguments ...any,
) {
	r.Eventf(o, kind, reason, format, arguments...)
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// encoder writes JSON with kind and apiVersion.
type encoder struct {
	known   *runtime.Scheme
	version schema.GroupVersion
}

func (e encoder) Encode(o runtime.Object, w io.Writer) error {
	copied := o.DeepCopyObject()
	kinds, _, err := e.known.ObjectKinds(copied)
	if err != nil {
		return err
	}
	copied.GetObjectKind().SetGroupVersionKind(kinds[0])
	return json.NewEncoder(w).Encode(copied)
}

func (e encoder) Identifier() runtime.Identifier { return "apiserver" }
