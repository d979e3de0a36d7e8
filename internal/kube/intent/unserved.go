package intent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Unserved is an intent that no process completes.
type Unserved[T any] struct {
	ConfigMap, Key string
	Node           string // the node that completes it when it is served; "" for none
	// Due reports that its node is served, and completes it unless it lacks the right to take it
	// over from a central process.
	Due    bool
	Intent T     // the zero value with Err
	Err    error // why it cannot be read; its volume may exist
}

// Unserved lists the intents that no process completes, as far as an observer or the
// process of a node can see: those for nodes that are not served, and those of a central
// process that are for no node or cannot be read. They wait for the return of their node, for
// a central process, which takes over all, or for an administrator. To an observer, those of a
// central process for a node that is served are Due.
func (s *Store[T]) Unserved(ctx context.Context, served func(node string) (bool, error)) ([]Unserved[T], error) {
	stores, err := s.others(ctx)
	if err != nil {
		return nil, err
	}
	all := s.viewOf(stores)
	var waiting []Unserved[T]
	answers := map[string]bool{"": false}
	for _, name := range slices.Sorted(maps.Keys(all.slots)) {
		for _, found := range s.intentsOf(all, all.slots[name]) {
			if !s.options.Observer && found.Node == s.options.Node { // in an object of a central process
				if !s.Stored(found.Key) { // else it is taken over, or its removal is due
					waiting = append(waiting, found)
				}
				continue
			}
			ok, err := askOnce(answers, found.Node, served)
			if err != nil {
				return nil, err
			}
			found.Due = ok
			if !ok || s.options.Observer && all.slots[name].node == "" {
				waiting = append(waiting, found)
			}
		}
	}
	return waiting, nil
}

// viewOf is the view of the objects of several stores.
func (s *Store[T]) viewOf(stores map[string][]*corev1.ConfigMap) *view {
	all := newView()
	for _, objects := range stores {
		for _, object := range objects {
			one, _ := s.options.slotOf(object)
			all.put(one, object)
		}
	}
	return all
}

// askOnce asks whether a node is served, unless the answer is known.
func askOnce(answers map[string]bool, node string, served func(node string) (bool, error)) (bool, error) {
	if answer, known := answers[node]; known {
		return answer, nil
	}
	answer, err := served(node)
	if err == nil {
		answers[node] = answer
	}
	return answer, err
}

// intentsOf reads the intents of a slot, sorted by key, with the node that completes
// each: that of the slot, or the intent's own in one of a central process.
func (s *Store[T]) intentsOf(all *view, one *slot) (found []Unserved[T]) {
	for _, r := range one.all {
		if r.change {
			continue
		}
		u := Unserved[T]{ConfigMap: one.name, Key: r.key, Node: one.node}
		if intent, err := s.decode(all, r); err != nil {
			u.Err = err
		} else {
			u.Intent, u.Node = intent, cmp.Or(one.node, s.kind.NodeOf(intent))
		}
		found = append(found, u)
	}
	slices.SortFunc(found, func(a, b Unserved[T]) int { return cmp.Compare(a.Key, b.Key) })
	return found
}

// RemoveLeft removes the objects of other stores that have no intents and that no process
// serves: the topologies of a former central process, and what a node left that is lost. A
// process that still acts for such a store notices, as if another one had taken it over. A
// process without the right to do so removes nothing.
func (s *Store[T]) RemoveLeft(ctx context.Context, served func(node string) (bool, error)) error {
	stores, err := s.others(ctx)
	if err != nil {
		return err
	}
	answers := map[string]bool{"": false}
	for node, objects := range stores {
		if slices.ContainsFunc(objects, func(o *corev1.ConfigMap) bool { return len(o.Data) > 0 }) {
			continue
		}
		ok, err := askOnce(answers, node, served)
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		err = s.removeStore(ctx, node, objects)
		if err != nil && !apierrors.IsForbidden(err) && !conflicting(err) {
			return fmt.Errorf("remove what store %q of driver %s left: %w", node, s.options.Driver, err)
		}
	}
	return nil
}

// others lists the objects of the stores that this process does not serve, by node.
func (s *Store[T]) others(ctx context.Context) (map[string][]*corev1.ConfigMap, error) {
	list, err := s.options.ConfigMaps.List(ctx, metav1.ListOptions{LabelSelector: storeLabel})
	if err != nil {
		return nil, fmt.Errorf("list the intents of driver %s: %w", s.options.Driver, err)
	}
	stores := map[string][]*corev1.ConfigMap{}
	for i := range list.Items {
		if one, ok := s.options.slotOf(&list.Items[i]); ok && !s.options.owns(one) {
			stores[one.node] = append(stores[one.node], &list.Items[i])
		}
	}
	return stores, nil
}

// removeStore deletes all objects of a store if they are still all of them once each has this
// process's mark: a process that acts for the store and creates an object after that finds
// the mark, or misses the object that had it, and reads all objects again.
func (s *Store[T]) removeStore(ctx context.Context, node string, objects []*corev1.ConfigMap) error {
	marked := map[string]bool{}
	for _, object := range objects {
		s.mu.Lock()
		s.mark(object)
		s.mu.Unlock()
		if _, err := s.options.ConfigMaps.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
			return err
		}
		marked[object.Name] = true
	}
	now, err := s.others(ctx)
	if err != nil {
		return err
	}
	for _, object := range now[node] {
		if !marked[object.Name] || !s.marked(object) {
			return nil
		}
	}
	for _, object := range now[node] {
		uid, version := object.UID, object.ResourceVersion
		err := s.options.ConfigMaps.Delete(ctx, object.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
		if err != nil {
			return err
		}
	}
	return nil
}
