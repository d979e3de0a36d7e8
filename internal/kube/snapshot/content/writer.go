// Package content serves VolumeSnapshotContents and VolumeGroupSnapshotContents:
// it decides each step of a content, makes the driver's calls through its Kind, and
// records the outcome. Packages snapshot and groupsnapshot are the two kinds.
package content

import (
	"context"
	"errors"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

var (
	// ErrChanged: the content has changed since the write was prepared. The next try
	// begins with its new state, so it is not shown to users.
	ErrChanged = errors.New("the content has changed meanwhile")
	// ErrGone: the content does not exist any more.
	ErrGone = errors.New("the content is gone")
	// errBehind: the cache of contents has not reached the content's version.
	errBehind = errors.New("the cache of contents is older than the content")
)

// attempts is how often a write is repeated from the content's new state when
// another client has written at the same time.
const attempts = 5

// API is what the typed client of a content offers.
type API[T any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (T, error)
}

// Writer writes contents of one kind. Every write is guarded: the API server rejects it
// if the content has changed since the write was prepared.
type Writer[T cluster.Object] struct {
	Kind     string
	Keys     claim.SnapshotKeys
	API      API[T]
	Store    *cluster.Store[T]
	Recorder record.EventRecorder
}

// Live reads a content from the API server, for steps that a stale cache must
// not decide. Another object of the same name is not the content.
func (w *Writer[T]) Live(ctx context.Context, object T) (T, error) {
	live, err := w.API.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return object, w.explain("read", object, err)
	}
	w.Store.Wrote(live)
	if live.GetUID() != object.GetUID() {
		return object, fmt.Errorf("%s %s: %w: it was created again", w.Kind, object.GetName(), ErrChanged)
	}
	return live, nil
}

// Marked reports whether the driver may have received the request for the snapshot,
// without a recorded answer.
func (w *Writer[T]) Marked(object T) bool {
	_, marked := object.GetAnnotations()[w.Keys.BeingCreated]
	return marked
}

// Mark records the request before the driver receives it, and adds the finalizer that
// keeps the content meanwhile. It applies desired to the content's state in the API
// server, not in the cache, and returns ErrChanged if desired is false. repeated reports
// that the content was marked before: the driver may have received the request that the
// content has (Frozen).
func (w *Writer[T]) Mark(ctx context.Context, object T, request Request, desired func(T) bool) (marked T, repeated bool, err error) {
	if w.Marked(object) {
		live, err := w.Recheck(ctx, object, desired)
		if err != nil || w.Marked(live) {
			return live, true, err
		}
		object = live
	}
	text, err := request.encode()
	if err != nil {
		return object, false, err
	}
	marked, err = w.write(ctx, object, desired, func(object T) (T, error) {
		if repeated = w.Marked(object); repeated {
			return object, nil
		}
		return w.patch(ctx, object, w.markOps(object, text))
	})
	return marked, repeated, err
}

// Recheck is Live for a content that must still be in a state.
func (w *Writer[T]) Recheck(ctx context.Context, object T, desired func(T) bool) (T, error) {
	live, err := w.Live(ctx, object)
	if err == nil && !desired(live) {
		err = fmt.Errorf("%s %s: %w", w.Kind, object.GetName(), ErrChanged)
	}
	return live, err
}

func (w *Writer[T]) markOps(object T, request string) []cluster.Op {
	ops := []cluster.Op{
		cluster.TestVersion(object.GetResourceVersion()),
		annotate(object, map[string]string{w.Keys.BeingCreated: "yes", claim.SnapshotRequestAnnotation: request}),
	}
	if object.GetDeletionTimestamp() == nil {
		ops = append(ops, cluster.AddFinalizers(object, w.Keys.Finalizer)...)
	}
	return ops
}

// annotate sets keys and keeps the others. The patch carries the resourceVersion, so that
// it does not overwrite concurrent changes.
func annotate(object metav1.Object, pairs map[string]string) cluster.Op {
	all := maps.Clone(object.GetAnnotations())
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, pairs)
	return cluster.Add(all, "metadata", "annotations")
}

// Unmark records that no call has an unknown outcome any more. The
// request stays: polls of a snapshot that is not ready use it, and the next mark
// replaces it.
func (w *Writer[T]) Unmark(ctx context.Context, object T) (T, error) {
	if !w.Marked(object) {
		return object, nil
	}
	key := []string{"metadata", "annotations", w.Keys.BeingCreated}
	return w.write(ctx, object, w.Marked, func(object T) (T, error) {
		value := object.GetAnnotations()[w.Keys.BeingCreated]
		return w.patch(ctx, object, []cluster.Op{sameObject(object), cluster.Test(value, key...), cluster.Remove(key...)})
	})
}

// Release removes the finalizer: the driver has deleted the snapshot, or must retain
// it.
func (w *Writer[T]) Release(ctx context.Context, object T) error {
	ops := cluster.RemoveFinalizers(object, w.Keys.Finalizer)
	if ops == nil {
		return nil
	}
	_, err := w.write(ctx, object, never, func(object T) (T, error) {
		return w.patch(ctx, object, append([]cluster.Op{sameObject(object)}, ops...))
	})
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

// never: after a change by another client, the next step is decided again.
func never[T any](T) bool { return false }

func sameObject(object metav1.Object) cluster.Op {
	return cluster.Test(object.GetUID(), "metadata", "uid")
}

func (w *Writer[T]) patch(ctx context.Context, object T, ops []cluster.Op) (T, error) {
	return w.API.Patch(ctx, object.GetName(), types.JSONPatchType, cluster.JSONPatch(ops...), metav1.PatchOptions{})
}

// Status merges into the status of a content while still is true. It does not write if
// the status would not change.
func (w *Writer[T]) Status(ctx context.Context, object T, still func(T) bool, status map[string]any) (T, error) {
	if unchangedBy(object, status) {
		return object, nil
	}
	return w.write(ctx, object, still, func(object T) (T, error) {
		patch := cluster.MergePatch(map[string]any{
			"metadata": map[string]any{"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion()},
			"status":   status,
		})
		return w.API.Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	})
}

// write makes a guarded write. It repeats the write from the content's new state if
// another client has written at the same time and the content still needs it. It returns the content as it is now, with ErrChanged if it is not.
func (w *Writer[T]) write(ctx context.Context, object T, still func(T) bool, attempt func(T) (T, error)) (T, error) {
	for try := 1; ; try++ {
		written, err := attempt(object)
		if err == nil {
			w.Store.Wrote(written)
			return written, nil
		}
		// A guard that fails is a conflict in a merge patch, and invalid in a JSON
		// patch; but so is a content that the API server refuses for good.
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			return object, w.explain("write", object, err)
		}
		live, gone := w.Live(ctx, object)
		switch {
		case gone != nil:
			return object, gone
		case live.GetResourceVersion() == object.GetResourceVersion():
			return object, w.explain("write", object, err)
		case try == attempts || !still(live):
			return live, fmt.Errorf("write %s %s: %w", w.Kind, object.GetName(), ErrChanged)
		}
		object = live
	}
}

// explain names the content in an error of the API server.
func (w *Writer[T]) explain(step string, object T, err error) error {
	if apierrors.IsNotFound(err) {
		err = ErrGone
	}
	return fmt.Errorf("%s %s %s: %w", step, w.Kind, object.GetName(), err)
}

// Transient reports whether an error concerns no user: the content has changed or does
// not exist any more, or the cache is behind, and the next step is decided again.
func Transient(err error) bool {
	return errors.Is(err, ErrChanged) || errors.Is(err, ErrGone) || errors.Is(err, errBehind)
}
