// Package content is what contents of single and of group snapshots have in
// common: how they are marked, written, waited for and owned.
package content

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

var (
	// ErrChanged: the content is not any more what the write was made for. The
	// next try begins with its new state; a user need not know.
	ErrChanged = errors.New("the content has changed meanwhile")
	// ErrGone: the content does not exist any more.
	ErrGone = errors.New("the content is gone")
)

// attempts is how often a write is made again from the content's new state
// when somebody else has written at the same time.
const attempts = 5

// API is what the typed client of a content offers.
type API[T any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (T, error)
}

// Writer writes contents of one kind. Every write is guarded: it is refused by
// the API server when the content is not what it was made for.
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
		return object, fmt.Errorf("%s %s: %w: it was made anew", w.Kind, object.GetName(), ErrChanged)
	}
	return live, nil
}

// Marked tells whether the driver may have been asked for the snapshot, with
// no answer recorded yet.
func (w *Writer[T]) Marked(object T) bool {
	_, marked := object.GetAnnotations()[w.Keys.BeingCreated]
	return marked
}

// Mark records that the driver is about to be asked for the snapshot, and sees
// to it that the content cannot vanish meanwhile. It decides with wanted on the
// content's state in the API server, not in the cache; ErrChanged if that is
// not the state for it any more.
func (w *Writer[T]) Mark(ctx context.Context, object T, wanted func(T) bool) (T, error) {
	if w.Marked(object) {
		return w.Recheck(ctx, object, wanted)
	}
	written, err := w.patch(ctx, object, w.markOps(object))
	for try := 1; errors.Is(err, ErrChanged) && try < attempts; try++ {
		if object, err = w.Recheck(ctx, object, wanted); err != nil || w.Marked(object) {
			return object, err
		}
		written, err = w.patch(ctx, object, w.markOps(object))
	}
	return written, err
}

// Recheck is Live for a content that must still be in a state.
func (w *Writer[T]) Recheck(ctx context.Context, object T, wanted func(T) bool) (T, error) {
	live, err := w.Live(ctx, object)
	if err == nil && !wanted(live) {
		err = fmt.Errorf("%s %s: %w", w.Kind, object.GetName(), ErrChanged)
	}
	return live, err
}

func (w *Writer[T]) markOps(object T) []cluster.Op {
	ops := []cluster.Op{cluster.TestVersion(object.GetResourceVersion()), annotate(object, w.Keys.BeingCreated, "yes")}
	if object.GetDeletionTimestamp() == nil {
		ops = append(ops, cluster.AddFinalizers(object, w.Keys.Finalizer)...)
	}
	return ops
}

// annotate sets one key and leaves the others alone, whoever writes them.
func annotate(object metav1.Object, key, value string) cluster.Op {
	if object.GetAnnotations() == nil {
		return cluster.Add(map[string]string{key: value}, "metadata", "annotations")
	}
	return cluster.Add(value, "metadata", "annotations", key)
}

// Unmark records that there is no call any more whose outcome is unknown.
func (w *Writer[T]) Unmark(ctx context.Context, object T) (T, error) {
	value, marked := object.GetAnnotations()[w.Keys.BeingCreated]
	if !marked {
		return object, nil
	}
	key := []string{"metadata", "annotations", w.Keys.BeingCreated}
	return w.patch(ctx, object, []cluster.Op{
		cluster.Test(object.GetUID(), "metadata", "uid"), cluster.Test(value, key...), cluster.Remove(key...),
	})
}

// Claim labels a content as a node's.
func (w *Writer[T]) Claim(ctx context.Context, object T, node string) (T, error) {
	label := cluster.Add(node, "metadata", "labels", claim.ManagedByLabel)
	if object.GetLabels() == nil {
		label = cluster.Add(map[string]string{claim.ManagedByLabel: node}, "metadata", "labels")
	}
	return w.patch(ctx, object, []cluster.Op{cluster.TestVersion(object.GetResourceVersion()), label})
}

// Release takes the finalizer off: the driver has nothing left of the content,
// or is to keep what it has.
func (w *Writer[T]) Release(ctx context.Context, object T) error {
	ops := cluster.RemoveFinalizers(object, w.Keys.Finalizer)
	if ops == nil {
		return nil
	}
	_, err := w.patch(ctx, object, append([]cluster.Op{cluster.Test(object.GetUID(), "metadata", "uid")}, ops...))
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

func (w *Writer[T]) patch(ctx context.Context, object T, ops []cluster.Op) (T, error) {
	written, err := w.API.Patch(ctx, object.GetName(), types.JSONPatchType, cluster.JSONPatch(ops...), metav1.PatchOptions{})
	if err != nil {
		return object, w.explain("write", object, err)
	}
	w.Store.Wrote(written)
	return written, nil
}

// Status merges into the status of a content that is still in a state, made
// again from the new state when somebody else has written at the same time: the
// driver need not be asked twice for that.
func (w *Writer[T]) Status(ctx context.Context, object T, still func(T) bool, status map[string]any) (T, error) {
	written, err := w.status(ctx, object, status)
	for try := 1; errors.Is(err, ErrChanged) && try < attempts; try++ {
		if object, err = w.Recheck(ctx, object, still); err != nil {
			return object, err
		}
		written, err = w.status(ctx, object, status)
	}
	return written, err
}

func (w *Writer[T]) status(ctx context.Context, object T, status map[string]any) (T, error) {
	patch := cluster.MergePatch(map[string]any{
		"metadata": map[string]any{"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion()},
		"status":   status,
	})
	written, err := w.API.Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return object, w.explain("write the status of", object, err)
	}
	w.Store.Wrote(written)
	return written, nil
}

// explain tells what an error of the API server means. A guard that fails is a
// conflict in a merge patch, and invalid in a JSON patch.
func (w *Writer[T]) explain(step string, object T, err error) error {
	text := fmt.Sprintf("%s %s %s", step, w.Kind, object.GetName())
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: %w", text, ErrGone)
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return fmt.Errorf("%s: %w: %w", text, ErrChanged, err)
	}
	return fmt.Errorf("%s: %w", text, err)
}

// Warn writes an event about a content.
func (w *Writer[T]) Warn(object T, reason, message string) {
	w.Recorder.Event(object, corev1.EventTypeWarning, reason, message)
}

// Quiet tells whether an error is no news to a user: the content has changed
// or gone, and what to do is seen anew.
func Quiet(err error) bool { return errors.Is(err, ErrChanged) || errors.Is(err, ErrGone) }
