package cluster

import (
	"context"
	"iter"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// Shared reads the same objects for many callers, such as deletions that each need to know
// what the API server has after they were decided.
type Shared[T Object] struct {
	lists *concurrency.Batcher[struct{}, []T]
}

// Shared returns the reader of the objects that match a label selector, of which it keeps
// those that keep accepts: the others may be many.
func (s *Store[T]) Shared(selector string, keep func(T) bool) *Shared[T] {
	list := func(ctx context.Context, _ []struct{}) (map[struct{}][]T, error) {
		var kept []T
		err := s.Read(ctx, selector, func(all iter.Seq[T]) {
			for object := range all {
				if keep(object) {
					kept = append(kept, object.DeepCopyObject().(T)) // not the whole page
				}
			}
		})
		return map[struct{}][]T{{}: kept}, err
	}
	return &Shared[T]{concurrency.NewBatcher(list, concurrency.BatchOptions{})}
}

// Read returns the objects as they were after the call began. Several callers share one list.
// It returns the errors of Store.Read, and concurrency.ErrClosed after Close.
func (r *Shared[T]) Read(ctx context.Context) (iter.Seq[T], error) {
	objects, _, err := r.lists.Get(ctx, struct{}{})
	return slices.Values(objects), err
}

// Close ends the reads. A nil reader needs none.
func (r *Shared[T]) Close() {
	if r != nil {
		r.lists.Close()
	}
}
