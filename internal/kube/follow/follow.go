// Package follow keeps a few objects up to date for as long as somebody waits
// for something to become true of them: one list, in pages, then one watch. It
// is for processes that have no caches (the node half of a driver, a hook), and
// ends when it is done.
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
	// pageSize bounds one answer of the API server, in objects.
	pageSize = 500
	// firstPause and longestPause are between a failure and the next attempt.
	firstPause, longestPause = 500 * time.Millisecond, 2 * time.Minute
	// settled is how long a watch must have lived for its end to be no failure:
	// API servers end each after some minutes.
	settled = 10 * time.Second
)

// Object is anything that the API server stores.
type Object interface {
	metav1.Object
	runtime.Object
}

// Source is a kind as the clients of package api have it, such as
// client.CoreV1().Nodes(); L is the type of its lists.
type Source[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Options say what is followed.
type Options[T Object] struct {
	// What names it in logs and errors, as in "the Node worker-1".
	What string
	// Name is that of the only object to follow; the API server sends no other.
	Name string
	// Keep chooses among the objects that the API server sends; nil keeps all.
	Keep func(T) bool
	Log  *Log
}

// See is shown the objects that are kept, by name: once when they are listed,
// then after each change among them. It ends the following with done. After an
// error it is shown the objects again, from a new list, after a pause.
type See[T Object] func(ctx context.Context, kept map[string]T) (done bool, err error)

// Objects follows until see is done or ctx ends, and then says what was last in
// the way.
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
		if time.Since(began) > settled {
			pause = firstPause
		}
		if !rest(ctx, pause) {
			return ended(ctx, o.What, err)
		}
		pause = min(2*pause, longestPause)
	}
}

// ended is the error of a context's end, with what was in the way.
func ended(ctx context.Context, what string, last error) error {
	if last == nil || errors.Is(last, ctx.Err()) {
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
	return fmt.Errorf("%s: %w; last: %w", what, ctx.Err(), last)
}

// rest waits d, give or take a quarter: after an outage the nodes of a cluster
// must not come back all at once.
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

// list reads all pages; the version is where a watch has to begin.
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

// watch shows changes until it is done, or until the watch ends, which is no
// error: API servers end each after some minutes.
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
