package cluster

import (
	"context"
	"iter"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// Shared reads the same objects for many callers, such as deletions that each need to know
// what the API server has after they were decided.
type Shared[T Object] struct {
	lists *concurrency.Batcher[struct{}, []Object] // of T; one type for all kinds keeps the program small
}

// NewShared returns the reader of the objects that match a label selector, of which it
// keeps those that keep accepts: the others may be many. It is not a method: the linker
// would keep it for every kind that has a Store.
func NewShared[T Object](s *Store[T], selector string, keep func(T) bool) *Shared[T] {
	list := func(ctx context.Context, _ []struct{}) (map[struct{}][]Object, error) {
		var kept []Object
		err := s.Read(ctx, selector, func(all iter.Seq[T]) {
			for object := range all {
				if keep(object) {
					kept = append(kept, object.DeepCopyObject().(T)) // not the whole page
				}
			}
		})
		return map[struct{}][]Object{{}: kept}, err
	}
	return &Shared[T]{concurrency.NewBatcher(list, concurrency.BatchOptions{})}
}

// Read returns the objects as they were after the call began. Several callers share one list.
// It returns the errors of Store.Read, and concurrency.ErrClosed after Close.
func (r *Shared[T]) Read(ctx context.Context) (iter.Seq[T], error) {
	objects, _, err := r.lists.Get(ctx, struct{}{})
	return func(yield func(T) bool) {
		for _, object := range objects {
			if !yield(object.(T)) {
				return
			}
		}
	}, err
}

// Close ends the reads. A nil reader needs none.
func (r *Shared[T]) Close() {
	if r != nil {
		r.lists.Close()
	}
}
