package status

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// follow lists and watches kinds into the mirror until the context ends. A list that is
// interrupted is repeated with client-go's back-off.
func follow(ctx context.Context, resources []resource, into *Mirror) {
	// Failed requests are on the page; the log of a host has no use for them.
	ctx = klog.NewContext(ctx, klog.Logger{})
	var group sync.WaitGroup
	for _, r := range resources {
		lister := r.lister(requests{
			failed: func(err error) { into.failed(r, err) },
			lost:   func() { into.lost(r.kind) }, watches: func() { into.recovered(r.kind) },
		})
		reflector := cache.NewReflectorWithOptions(lister, r.example, sink{into, r.kind}, cache.ReflectorOptions{
			Name: "status", TypeDescription: r.kind, Logger: &klog.Logger{},
		})
		group.Go(func() { reflector.RunWithContext(ctx) })
	}
	group.Wait()
}

// failed notes that a kind cannot be read. A cluster without snapshots has none.
func (m *Mirror) failed(r resource, err error) {
	switch {
	case r.custom && apierrors.IsNotFound(err):
		m.replace(r.kind, nil)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		m.problem(r.kind, "not allowed to read objects of kind "+r.kind)
	case m.wasRead(r.kind):
		m.lost(r.kind)
	case !m.ready([]string{r.kind}):
		m.problem(r.kind, fmt.Sprintf("objects of kind %s cannot be read: %v", r.kind, err))
	}
}

// sink is a mirror's table as the store of a reflector.
type sink struct {
	mirror *Mirror
	kind   string
}

// Add implements cache.ReflectorStore.
func (s sink) Add(item any) error { return s.put(item) }

// Update implements cache.ReflectorStore.
func (s sink) Update(item any) error { return s.put(item) }

func (s sink) put(item any) error {
	object, ok := item.(Object)
	if !ok {
		return fmt.Errorf("%T is not an object", item)
	}
	if relevant(object) {
		s.mirror.put(s.kind, reduced(object))
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (s sink) Delete(item any) error {
	object, ok := item.(Object)
	if !ok {
		return fmt.Errorf("%T is not an object", item)
	}
	s.mirror.remove(s.kind, keyOf(object))
	return nil
}

// Replace implements cache.ReflectorStore.
func (s sink) Replace(items []any, _ string) error {
	objects := make([]Object, 0, len(items))
	for _, item := range items {
		object, ok := item.(Object)
		if !ok {
			return fmt.Errorf("%T is not an object", item)
		}
		if relevant(object) {
			objects = append(objects, reduced(object))
		}
	}
	s.mirror.replace(s.kind, objects)
	return nil
}

// Resync implements cache.ReflectorStore.
func (s sink) Resync() error { return nil }

// relevant leaves out the events of objects that the page does not show.
func relevant(object Object) bool {
	event, ok := object.(*corev1.Event)
	if !ok {
		return true
	}
	switch event.InvolvedObject.Kind {
	case kindPod, kindClaim, kindVolume, kindSnapshot, kindContent, kindAttachment:
		return true
	}
	return false
}

// reduced removes what no page shows. The object is new, and nobody else has it.
func reduced(object Object) Object {
	object.SetManagedFields(nil)
	annotations := object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	return object
}
