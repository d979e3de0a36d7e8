// Package follow watches a few objects until they satisfy a condition: one list,
// in pages, then one watch. It is for processes without caches (the node half of a
// driver, a hook).
package follow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

const (
	// pageSize limits one answer of the API server, in objects.
	pageSize = 500
	// firstPause and longestPause limit the backoff after a failure.
	firstPause, longestPause = 500 * time.Millisecond, 2 * time.Minute
	// stableAfter is the lifetime after which the end of a watch resets the backoff:
	// API servers end every watch after some minutes.
	stableAfter = 10 * time.Second
)

// Object is anything that the API server stores.
type Object interface {
	metav1.Object
	runtime.Object
}

// Source is the client of a kind in package api, such as client.CoreV1().Nodes();
// L is the type of its lists.
type Source[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Options select the objects to follow.
type Options[T Object] struct {
	// What names them in logs and errors, as in "the Node worker-1".
	What string
	// Name selects one object by name, on the API server; "" selects all.
	Name string
	// Keep filters the objects that the API server sends; nil keeps all.
	Keep func(T) bool
	Log  *Log
}

// See receives the kept objects by name: once after the list, then after each change
// among them. If it returns done, Objects returns. After an error Objects lists again
// after a pause and calls See with the result.
type See[T Object] func(ctx context.Context, kept map[string]T) (done bool, err error)

// Objects follows the objects until see returns done, or until ctx ends. The error
// then includes the last failure.
func Objects[T Object, L runtime.Object](ctx context.Context, source Source[L], o Options[T], see See[T]) error {
	f := follower[T, L]{source: source, options: o, see: see}
	pause := firstPause
	for {
		began := time.Now()
		done, err := f.once(ctx)
		if done {
			return nil
		}
		if ctx.Err() != nil {
			return ended(ctx, o.What, err)
		}
		if err != nil {
			o.Log.Failure(ctx, o.What, err)
		}
		if time.Since(began) > stableAfter {
			pause = firstPause
		}
		if !rest(ctx, pause) {
			return ended(ctx, o.What, err)
		}
		pause = min(2*pause, longestPause)
	}
}

// ended returns the error of a context's end together with the last failure.
func ended(ctx context.Context, what string, last error) error {
	if last == nil || errors.Is(last, ctx.Err()) {
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
	return fmt.Errorf("%s: %w; last: %w", what, ctx.Err(), last)
}

// rest waits for d with 25 % jitter: after an outage the nodes of a cluster must not
// reconnect all at once.
func rest(ctx context.Context, d time.Duration) bool {
	return work.Sleep(ctx, d*3/4+rand.N(d/2)) //nolint:gosec // no secret
}

type follower[T Object, L runtime.Object] struct {
	source  Source[L]
	options Options[T]
	see     See[T]
	kept    map[string]T
}

// once lists and then watches until the watch ends.
func (f *follower[T, L]) once(ctx context.Context) (done bool, err error) {
	version, err := f.list(ctx)
	if err != nil {
		return false, err
	}
	if done, err = f.see(ctx, f.kept); done || err != nil {
		return done, err
	}
	return f.watch(ctx, version)
}

func (f *follower[T, L]) selection() metav1.ListOptions {
	if f.options.Name == "" {
		return metav1.ListOptions{}
	}
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", f.options.Name).String()}
}

// list reads all pages and returns the resourceVersion from which to watch.
func (f *follower[T, L]) list(ctx context.Context) (version string, err error) {
	f.kept = map[string]T{}
	options := f.selection()
	for options.Limit = pageSize; ; {
		page, err := f.source.List(ctx, options)
		if err != nil {
			return "", fmt.Errorf("list: %w", err)
		}
		if err := meta.EachListItem(page, func(item runtime.Object) error { return f.keep(item) }); err != nil {
			return "", err
		}
		head, err := meta.ListAccessor(page)
		if err != nil {
			return "", fmt.Errorf("list: %w", err)
		}
		if options.Continue = head.GetContinue(); options.Continue == "" {
			return head.GetResourceVersion(), nil
		}
	}
}

func (f *follower[T, L]) keep(item runtime.Object) error {
	object, ok := item.(T)
	if !ok {
		return fmt.Errorf("the API server sent a %T", item)
	}
	if f.options.Keep == nil || f.options.Keep(object) {
		f.kept[object.GetName()] = object
	}
	return nil
}

// watch passes changes to see until it returns done or the watch ends. The end of a
// watch is not an error: API servers end every watch after some minutes.
func (f *follower[T, L]) watch(ctx context.Context, version string) (done bool, err error) {
	options := f.selection()
	options.ResourceVersion = version
	events, err := f.source.Watch(ctx, options)
	if err != nil {
		return false, fmt.Errorf("watch: %w", err)
	}
	defer events.Stop()
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				return false, nil
			}
			changed, err := f.apply(event)
			if err != nil {
				return false, err
			}
			if !changed {
				continue
			}
			if done, err = f.see(ctx, f.kept); done || err != nil {
				return done, err
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
