package intent

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Unserved lists the intents that no process completes, as far as the process of
// a node can tell: those of nodes that are not served, and those of a central
// process that are for no node. They wait for that node to come back, for a
// central process, which takes over all, or for a person.
func (s *Store[T]) Unserved(ctx context.Context, served func(node string) (bool, error)) (map[string]T, error) {
	list, err := s.options.ConfigMaps.List(ctx, metav1.ListOptions{LabelSelector: storeLabel})
	if err != nil {
		return nil, fmt.Errorf("list the intents of driver %s: %w", s.options.Driver, err)
	}
	waiting := map[string]T{}
	for i := range list.Items {
		one, ok := s.options.shardOf(&list.Items[i])
		if !ok || s.ownsAll(one) {
			continue
		}
		if one.node != "" {
			found, err := served(one.node)
			if err != nil {
				return nil, err
			}
			if found {
				continue
			}
		}
		for key := range one.object.Data {
			record, mine := s.decode(one, key)
			if _, known := s.Get(key); !mine && !known {
				waiting[key] = record
			}
		}
	}
	return waiting, nil
}
