package intent

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// perform makes planned writes. It returns the first error.
func (s *Store[T]) perform(ctx context.Context, writes []*write) error {
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, w := range writes {
		group.Go(func() error {
			if err := s.write(ctx, w); err != nil {
				return fmt.Errorf("ConfigMap %s: %w", w.slot.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// write creates the object of a slot, updates or deletes it.
func (s *Store[T]) write(ctx context.Context, w *write) error {
	s.mu.Lock()
	next, before := s.content(w), w.slot.object
	s.mark(next)
	s.mu.Unlock()
	made, err := s.send(ctx, w, next, before)
	if err != nil {
		s.failed(w.slot, err)
		return err
	}
	s.confirm(w, made)
	if before == nil {
		return s.verify(ctx, w.slot)
	}
	return nil
}

// mark makes an object one that this process wrote. The caller holds the lock.
func (s *Store[T]) mark(object *corev1.ConfigMap) {
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	s.marks++ // a write that changes nothing would leave the version as it is
	object.Annotations[writerAnnotation] = s.writer + "-" + strconv.Itoa(s.marks)
}

func (s *Store[T]) marked(object *corev1.ConfigMap) bool {
	return strings.HasPrefix(object.Annotations[writerAnnotation], s.writer)
}

// send makes one write. It returns the object as it is stored; nil for a deleted one.
func (s *Store[T]) send(ctx context.Context, w *write, next, before *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	switch {
	case before == nil:
		return s.options.ConfigMaps.Create(ctx, next, metav1.CreateOptions{})
	case len(next.Data)+len(next.BinaryData) > 0 || w.keep:
		// One empty entry has the API server drop the managed fields, and keep none from then
		// on. They repeat the name of each entry, and are more bytes than the mark of an intent.
		next.ManagedFields = []metav1.ManagedFieldsEntry{{}}
		return s.options.ConfigMaps.Update(ctx, next, metav1.UpdateOptions{})
	}
	uid, version := before.UID, before.ResourceVersion
	return nil, s.options.ConfigMaps.Delete(ctx, next.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
}

// failed notes a write that had no effect, or whose outcome is unknown.
func (s *Store[T]) failed(t *slot, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = true
	if conflicting(err) {
		return
	}
	t.stale = true
}

// confirm notes what was written.
func (s *Store[T]) confirm(w *write, made *corev1.ConfigMap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := w.slot
	delete(s.unused, t)
	t.stale, t.signed, t.alone = false, true, len(data(t.object)) == 0
	touched := s.hold(t, made)
	for entry := range w.entries {
		if r := t.all[entry]; r != nil {
			s.supersede(r)
		}
	}
	for _, r := range touched {
		if _, dead := s.dead[r.key]; dead && !s.holds(r.key) {
			s.bury(r.key)
		} else {
			s.reconsider(r.key)
		}
	}
	if s.removable(t) {
		s.noteUnused(t, time.Now())
	}
}

// hold makes an object the one of a slot. The caller holds the lock.
func (s *Store[T]) hold(t *slot, object *corev1.ConfigMap) (touched []*record) {
	if object != nil {
		object.ManagedFields = nil // of a new object, or of an earlier release
	}
	touched = s.view.put(t, object)
	if object == nil {
		delete(s.view.slots, t.name)
		delete(s.unused, t)
	}
	for _, r := range touched {
		for other := range s.view.shared[r.part()] {
			if s.view.uses[r.part()] == 0 {
				s.noteUnused(other, time.Now())
			}
		}
		if ms, _, ok := strings.Cut(r.ID, "-"); ok {
			at, _ := strconv.ParseInt(ms, 10, 64)
			s.clock = max(s.clock, at)
		}
	}
	return touched
}

// supersede notes that a record has what the earlier changes of its intent have.
func (s *Store[T]) supersede(by *record) {
	for _, r := range s.view.records[by.key] {
		if r.change && r != by && r.slot.node == by.slot.node && (r.err != nil || r.Of == by.Of || r.Of == by.ID) {
			r.superseded = true
			s.noteUnused(r.slot, time.Now())
		}
	}
}

// verify finds out whether another process has taken over before an object was created:
// it has marked all earlier objects. Without one, all are read again.
func (s *Store[T]) verify(ctx context.Context, created *slot) error {
	s.mu.Lock()
	var witness *slot
	for _, t := range s.view.slots {
		if t != created && s.options.logs(t) && t.object != nil && (witness == nil || t.object.Size() < witness.object.Size()) {
			witness = t
		}
	}
	known := ""
	if witness != nil {
		known = version(witness.object)
	} else {
		s.behind = true
	}
	s.mu.Unlock()
	if witness == nil {
		return nil
	}
	live, err := s.options.ConfigMaps.Get(ctx, witness.name, metav1.GetOptions{})
	if err == nil && live.ResourceVersion == known {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = true
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
