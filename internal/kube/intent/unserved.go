package intent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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
	var waiting []Unserved[T]
	answers := map[string]bool{"": false}
	for i := range list.Items {
		one, ok := s.options.shardOf(&list.Items[i])
		if !ok || s.ownsAll(one) {
			continue
		}
		for _, found := range s.intentsOf(one) {
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

// intentsOf reads the intents of an object, sorted by key, with the node that
// completes each: that of the object, or the intent's own in one of a central process.
func (s *Store[T]) intentsOf(one *shard) (all []Unserved[T]) {
	for key, text := range one.object.Data {
		found := Unserved[T]{ConfigMap: one.name, Key: key, Node: one.node}
		var intent T
		if found.Err = json.Unmarshal([]byte(text), &intent); found.Err == nil {
			found.Intent = intent
			found.Node = cmp.Or(one.node, s.nodeOf(intent))
		}
		all = append(all, found)
	}
	slices.SortFunc(all, func(a, b Unserved[T]) int { return cmp.Compare(a.Key, b.Key) })
	return all
}
