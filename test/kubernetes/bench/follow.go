package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// source is a kind of objects to follow.
type source = *cache.ListWatch

// of makes a source of a typed client.
func of[L runtime.Object](client interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}) source {
	return &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: client.Watch,
	}
}

// selected narrows a source to the objects that a label selector matches.
func selected(objects source, labels string) source {
	narrow := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = labels
		return o
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return objects.ListWithContextFunc(ctx, narrow(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return objects.WatchFuncWithContext(ctx, narrow(o))
		},
	}
}

// condition reports whether an object has the desired state. gone is set for the last
// state of a deleted object.
type condition func(object metav1.Object, gone bool) bool

// arrivals counts the objects that satisfy a condition, each once, also if the watch breaks.
type arrivals struct {
	mu      sync.Mutex
	got     map[string]bool
	changed chan struct{} // has room for one
}

// follow starts to count the objects that satisfy the condition, until ctx ends.
func follow(ctx context.Context, objects source, there condition) (*arrivals, error) {
	a := &arrivals{got: map[string]bool{}, changed: make(chan struct{}, 1)}
	add := func(item any, gone bool) {
		if last, ok := item.(cache.DeletedFinalStateUnknown); ok {
			item = last.Obj
		}
		if object, ok := item.(metav1.Object); ok && there(object, gone) {
			a.add(object.GetName())
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: objects,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(item any) { add(item, false) },
			UpdateFunc: func(_, item any) { add(item, false) },
			DeleteFunc: func(item any) { add(item, true) },
		},
	})
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.New("the objects cannot be listed")
	}
	return a, nil
}

func (a *arrivals) add(name string) {
	a.mu.Lock()
	a.got[name] = true
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.got)
}

// sayPeriod is the interval of reports of progress.
const sayPeriod = 10 * time.Second

// await returns when n objects satisfy the condition.
func (a *arrivals) await(ctx context.Context, n int) error {
	progress := time.NewTicker(sayPeriod)
	defer progress.Stop()
	for a.count() < n {
		select {
		case <-progress.C:
			say("%d of %d objects have the desired state", a.count(), n)
		case <-ctx.Done():
			return fmt.Errorf("%d of %d objects have the desired state: %w", a.count(), n, context.Cause(ctx))
		case <-a.changed:
		}
	}
	return nil
}
