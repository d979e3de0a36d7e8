package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
)

// Object is an object of the Kubernetes API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Index finds objects by a value other than their key.
type Index[T Object] struct {
	Name   string
	Values func(T) []string
}

// Store is the cache of one kind: the last known state, including writes of this
// process that the watch has not delivered yet. All readers share its objects: modify a
// DeepCopy only.
//
// A Store makes no request before the Set starts it.
type Store[T Object] struct {
	kind     string
	list     func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	informer cache.SharedIndexInformer
	logger   *slog.Logger

	mu           sync.Mutex
	used         map[string]bool
	handlers     []func(old, new T)
	started      bool
	registration cache.ResourceEventHandlerRegistration // nil until the handlers are registered
	// assumed are answers to our own writes that the watch has not delivered
	// yet, by key.
	assumed map[string]T
}

// lister has the methods of every client of a kind.
type lister[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// chosen adds a label or field selector to lists and watches. An object that leaves the
// selection leaves the store.
type chosen struct {
	labels, fields string
}

func newStore[T Object, L runtime.Object](
	kind string, example T, client any, source lister[L], only chosen, logger *slog.Logger,
) *Store[T] {
	narrow := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = only.labels, only.fields
		return o
	}
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return source.List(ctx, o) }
	listing := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, narrow(o)) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return source.Watch(ctx, narrow(o))
		},
	}
	s := &Store[T]{kind: kind, list: list, logger: logger, used: map[string]bool{}, assumed: map[string]T{}}
	s.informer = cache.NewSharedIndexInformerWithOptions(
		cache.ToListWatcherWithWatchListSemantics(listing, client), example,
		cache.SharedIndexInformerOptions{ObjectDescription: kind, Indexers: cache.Indexers{}},
	)
	return s
}

// Use makes an index available to By. It must be called before the Set starts.
func (s *Store[T]) Use(indexes ...Index[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, index := range indexes {
		if s.used[index.Name] {
			continue
		}
		s.used[index.Name] = true
		values := func(object any) ([]string, error) {
			if o, ok := object.(T); ok {
				return index.Values(o), nil
			}
			return nil, nil
		}
		if err := s.informer.AddIndexers(cache.Indexers{index.Name: values}); err != nil {
			panic(fmt.Sprintf("index %s of %s asked for after its store was started: %v", index.Name, s.kind, err))
		}
	}
}

// OnChange calls f for each change, in order: old is nil (the zero T) for a
// new object, also while the store fills at the start; new is nil for a deleted one.
// f must not block. It must be called before the Set starts.
func (s *Store[T]) OnChange(f func(old, new T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = append(s.handlers, f)
}

// Get finds an object by "namespace/name", or "name" for kinds without
// namespaces. A newer answer to an own write is preferred.
func (s *Store[T]) Get(key string) (T, bool) {
	if object, found := s.newer(key); found {
		return object, true
	}
	item, found, err := s.informer.GetStore().GetByKey(key)
	if err != nil || !found {
		var none T
		return none, false
	}
	object, ok := item.(T)
	return object, ok
}

// List returns all objects, in no order.
func (s *Store[T]) List() []T { return s.all(s.informer.GetStore().List()) }

// Values returns the values of an index that objects have.
func (s *Store[T]) Values(index Index[T]) []string {
	return s.informer.GetIndexer().ListIndexFuncValues(index.Name)
}

// By returns the objects with a value of an index. An object that this process has just
// created may be missing. One that it has just changed is found by its old values and
// returned in its new state.
func (s *Store[T]) By(index Index[T], value string) []T {
	items, err := s.informer.GetIndexer().ByIndex(index.Name, value)
	if err != nil {
		panic(fmt.Sprintf("index %s of %s is read but was not asked for with Use", index.Name, s.kind))
	}
	return s.all(items)
}

func (s *Store[T]) all(items []any) []T {
	objects := make([]T, 0, len(items))
	for _, item := range items {
		object, ok := item.(T)
		if !ok {
			continue
		}
		if newer, found := s.newer(keyOf(object)); found {
			object = newer
		}
		objects = append(objects, object)
	}
	return objects
}

// errEnough ends a Read whose user needs no more objects.
var errEnough = errors.New("enough objects")

// Read calls use with the objects that the API server has now and that match a label
// selector, for steps that a cache must not decide: it may be behind, or lack the objects
// of other nodes.
func (s *Store[T]) Read(ctx context.Context, selector string, use func(iter.Seq[T])) (err error) {
	use(func(yield func(T) bool) {
		err = pager.New(s.list).EachListItem(ctx, metav1.ListOptions{LabelSelector: selector}, func(item runtime.Object) error {
			if object, ok := item.(T); ok && !yield(object) {
				return errEnough
			}
			return nil
		})
	})
	if err == nil || errors.Is(err, errEnough) {
		return nil
	}
	return fmt.Errorf("list %ss: %w", s.kind, err)
}

// Newest returns the object that the API server has and that changed last; the zero T if there is
// none. Once the store has Reached it, it has every object that existed when Newest was
// called.
func (s *Store[T]) Newest(ctx context.Context) (newest T, err error) {
	var none T
	err = s.Read(ctx, "", func(objects iter.Seq[T]) {
		for object := range objects {
			if any(newest) == any(none) || older(newest, object) {
				newest = object
			}
		}
	})
	return newest, err
}

// Reread returns an object of a kind without namespaces as the API server has it, or ErrGone. It
// lists one object: the process may have no right to get objects of the kind.
func (s *Store[T]) Reread(ctx context.Context, object T) (found T, err error) {
	list, err := s.list(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", object.GetName()).String()})
	if err != nil {
		return found, fmt.Errorf("list %s %s: %w", s.kind, object.GetName(), err)
	}
	err = ErrGone
	failed := meta.EachListItem(list, func(item runtime.Object) error {
		if live, ok := item.(T); ok && live.GetUID() == object.GetUID() {
			found, err = live, nil
		}
		return nil
	})
	if err = cmp.Or(failed, err); err != nil {
		return found, fmt.Errorf("%w: %s %s", err, s.kind, object.GetName())
	}
	s.Wrote(found)
	return found, nil
}

// Version returns the version of the kind that the API server has now.
func (s *Store[T]) Version(ctx context.Context) (string, error) {
	list, err := s.list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("list %ss: %w", s.kind, err)
	}
	read, err := meta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("list %ss: %w", s.kind, err)
	}
	return read.GetResourceVersion(), nil
}

// Wrote passes the API server's answer to a write of this process to the store, so that
// the writer reads no older state from now on. The store owns the object from then on.
// Do not pass the answer of a deletion: the watch delivers it.
func (s *Store[T]) Wrote(object T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Under the lock, so that the watch's end of it (caughtUp) comes after it.
	if s.passed(object) {
		return
	}
	key := keyOf(object)
	// Of two concurrent writers the one with the later answer may come first.
	if own, found := s.assumed[key]; found && !older(own, object) {
		return
	}
	object.SetManagedFields(nil)
	s.assumed[key] = object
}

// older compares versions of one object; what cannot be compared is older.
func older(a, b Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err != nil || order < 0
}

// caughtUp drops an own write that the watch has delivered. Otherwise the store would
// keep each object that this process created twice.
func (s *Store[T]) caughtUp(object T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(object)
	if own, found := s.assumed[key]; found && s.passed(own) {
		delete(s.assumed, key)
	}
}

// newer returns an own write that the watch has not delivered yet.
func (s *Store[T]) newer(key string) (T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object, found := s.assumed[key]
	if found && s.passed(object) {
		delete(s.assumed, key)
		found = false
	}
	return object, found
}

// passed reports whether the watch has gone past an object's version: then the
// store has it, or something newer, or its end.
func (s *Store[T]) passed(object T) bool { return s.ReachedVersion(object.GetResourceVersion()) }

// ReachedVersion reports whether the watch has delivered all changes of the kind up to a
// version, deletions too. The API server tells of the version of a kind without changes about once
// a minute.
func (s *Store[T]) ReachedVersion(version string) bool {
	seen := s.informer.GetStore().LastStoreSyncResourceVersion()
	if seen == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(seen, version)
	return err != nil || order >= 0
}

// Reached reports whether the watch has delivered all changes of the kind up to an
// object's version. Then the store has every object that was made before that version.
func (s *Store[T]) Reached(object T) bool { return s.passed(object) }

// HasSynced reports whether the store is filled and, unless they are suppressed, its
// handlers have been called for each object.
func (s *Store[T]) HasSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.registration != nil {
		return s.registration.HasSynced()
	}
	return s.started && s.informer.HasSynced()
}

// start lists and watches until ctx ends. The handlers are called at once, or from
// notify on if they are suppressed.
func (s *Store[T]) start(ctx context.Context, suppressed bool) {
	s.mu.Lock()
	started := s.started
	s.started = true
	s.mu.Unlock()
	if started {
		return
	}
	if !suppressed {
		s.notify()
	}
	if err := s.informer.SetTransform(newReducer().reduce); err != nil {
		panic(fmt.Sprintf("transform of %s: %v", s.kind, err))
	}
	_ = s.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		s.logger.WarnContext(ctx, "the watch was interrupted and is restarted", "kind", s.kind, "error", err)
	})
	go s.informer.RunWithContext(ctx)
}

// notify calls the handlers for each object, and from then on for each change. A
// store that is not started does so once it is.
func (s *Store[T]) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.registration != nil || !s.started {
		return
	}
	registration, err := s.informer.AddEventHandler(s.handler())
	if err != nil {
		panic(fmt.Sprintf("handler of %s: %v", s.kind, err))
	}
	s.registration = registration
}

// forget removes the handlers; the store keeps following its objects. Handlers that are
// registered afterwards are called from notify on.
func (s *Store[T]) forget() {
	s.mu.Lock()
	registration := s.registration
	s.registration, s.handlers = nil, nil
	s.mu.Unlock()
	if registration == nil {
		return
	}
	if err := s.informer.RemoveEventHandler(registration); err != nil {
		panic(fmt.Sprintf("handler of %s: %v", s.kind, err))
	}
}

func (s *Store[T]) handler() cache.ResourceEventHandler {
	handlers := s.handlers
	var none T
	call := func(old, new T) {
		if any(new) != any(none) {
			s.caughtUp(new)
		} else {
			s.caughtUp(old)
		}
		for _, f := range handlers {
			f(old, new)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(item any) {
			if object, ok := item.(T); ok {
				call(none, object)
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok := before.(T)
			object, also := after.(T)
			if ok && also {
				call(old, object)
			}
		},
		DeleteFunc: func(item any) {
			if gone, ok := item.(cache.DeletedFinalStateUnknown); ok {
				item = gone.Obj
			}
			if object, ok := item.(T); ok {
				call(object, none)
			}
		},
	}
}

// KeyOf is the key of an object in its store: "namespace/name", or "name".
func KeyOf(object metav1.Object) string { return keyOf(object) }

func keyOf(object metav1.Object) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}
