package intent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Unserved is an intent that no process completes.
type Unserved[T any] struct {
	ConfigMap, Key string
	Node           string // the node that completes it when it is served; "" for none
	Intent         T      // the zero value with Err
	Err            error  // why it cannot be read; its volume may exist
}

// Unserved lists the intents that no process completes, as far as the process of a
// node can see: those for nodes that are not served, and those of a central process
// that are for no node or cannot be read. They wait for the return of their node, for a
// central process, which takes over all, or for an administrator.
func (s *Store[T]) Unserved(ctx context.Context, served func(node string) (bool, error)) ([]Unserved[T], error) {
	list, err := s.options.ConfigMaps.List(ctx, metav1.ListOptions{LabelSelector: storeLabel})
	if err != nil {
		return nil, fmt.Errorf("list the intents of driver %s: %w", s.options.Driver, err)
	}
	all := newView()
	for i := range list.Items {
		if one, ok := s.options.slotOf(&list.Items[i]); ok && !s.options.owns(one) {
			all.put(one, &list.Items[i])
		}
	}
	var waiting []Unserved[T]
	answers := map[string]bool{"": false}
	for _, name := range slices.Sorted(maps.Keys(all.slots)) {
		for _, found := range s.intentsOf(all, all.slots[name]) {
			if found.Node == s.options.Node { // in an object of a central process
				if !s.Stored(found.Key) { // else it is taken over, or its removal is due
					waiting = append(waiting, found)
				}
				continue
			}
			ok, err := askOnce(answers, found.Node, served)
			if err != nil {
				return nil, err
			}
			if !ok {
				waiting = append(waiting, found)
			}
		}
	}
	return waiting, nil
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
