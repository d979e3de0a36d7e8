package follow

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// apply applies a watch event to the kept objects and reports whether they changed.
func (f *follower[T, L]) apply(event watch.Event) (changed bool, err error) {
	switch event.Type {
	case watch.Error:
		return false, fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
	case watch.Bookmark:
		return false, nil
	}
	object, ok := event.Object.(T)
	if !ok {
		return false, fmt.Errorf("the API server sent a %T", event.Object)
	}
	_, had := f.kept[object.GetName()]
	if event.Type == watch.Deleted || (f.options.Keep != nil && !f.options.Keep(object)) {
		delete(f.kept, object.GetName())
		return had, nil
	}
	f.kept[object.GetName()] = object
	return true, nil
}
