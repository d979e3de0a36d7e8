// Package content serves VolumeSnapshotContents and VolumeGroupSnapshotContents:
// it decides each step of a content, makes the driver's calls through its Kind, and
// records the outcome. Packages snapshot and groupsnapshot are the two kinds.
package content

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// errBehind: the cache of contents has not reached the content's version.
var errBehind = errors.New("the cache of contents is older than the content")

// Writer writes contents of one kind. Every write is guarded: the API server rejects it
// if the content has changed since the write was prepared.
type Writer[T cluster.Object] struct {
	Kind     string
	Keys     claim.SnapshotKeys
	API      cluster.Client[T]
	Store    *cluster.Store[T]
	Recorder record.EventRecorder
}

// Marked reports whether the driver may have received the request for the snapshot,
// without a recorded answer.
func (w *Writer[T]) Marked(object T) bool {
	_, marked := object.GetAnnotations()[w.Keys.BeingCreated]
	return marked
}

// Mark records the request before the driver receives it, and adds the finalizer that
// keeps the content meanwhile. It applies desired to the content's state in the API
// server, not in the cache, and returns cluster.ErrChanged if desired is false. repeated
// reports that the content was marked before: the driver may have received the request that
// the content has (Frozen).
func (w *Writer[T]) Mark(
	ctx context.Context, object T, request Request, desired func(T) bool,
) (marked T, repeated bool, err error) {
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
		return w.Store.Patch(ctx, w.API, object, w.markOps(object, text)...)
	})
	return marked, repeated, err
}

// Recheck reads a content from the API server, where it must still be in a state.
func (w *Writer[T]) Recheck(ctx context.Context, object T, desired func(T) bool) (T, error) {
	live, err := w.Store.Live(ctx, w.API, object)
	if err == nil && !desired(live) {
		err = fmt.Errorf("%s %s: %w", w.Kind, object.GetName(), cluster.ErrChanged)
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
		return w.Store.Patch(ctx, w.API, object, cluster.Test(value, key...), cluster.Remove(key...))
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
		return w.Store.Patch(ctx, w.API, object, ops...)
	})
	if errors.Is(err, cluster.ErrGone) {
		return nil
	}
	return err
}

// never: after a change by another client, the next step is decided again.
func never[T any](T) bool { return false }

// Status merges into the status of a content while still is true. It does not write if
// the status would not change.
func (w *Writer[T]) Status(ctx context.Context, object T, still func(T) bool, status map[string]any) (T, error) {
	if unchangedBy(object, status) {
		return object, nil
	}
	return w.write(ctx, object, still, func(object T) (T, error) {
		return w.Store.Merge(ctx, w.API, object, map[string]any{
			"metadata": map[string]any{"resourceVersion": object.GetResourceVersion()}, "status": status,
		}, "status")
	})
}

// Place records from where a snapshot can be restored, once. It is called before the
// snapshot's ID is recorded: after a crash between the two, the driver is asked again.
func (w *Writer[T]) Place(ctx context.Context, object T, still func(T) bool, topology []*csi.Topology) (T, error) {
	text, err := claim.SnapshotAffinity(topology)
	if err != nil || text == "" || placed(object) {
		return object, err
	}
	unplaced := func(object T) bool { return !placed(object) && still(object) }
	return w.write(ctx, object, unplaced, func(object T) (T, error) {
		return w.Store.Patch(ctx, w.API, object, cluster.TestVersion(object.GetResourceVersion()),
			annotate(object, map[string]string{claim.NodeAffinityAnnotation: text}))
	})
}

func placed(object metav1.Object) bool {
	_, known := object.GetAnnotations()[claim.NodeAffinityAnnotation]
	return known
}

// write makes a write and repeats it while a content that has changed still needs it.
func (w *Writer[T]) write(ctx context.Context, object T, still func(T) bool, attempt func(T) (T, error)) (T, error) {
	written, err := w.Store.Retry(ctx, w.API, object, still, attempt)
	if err != nil {
		err = fmt.Errorf("write %s %s: %w", w.Kind, object.GetName(), err)
	}
	return written, err
}

// Transient reports whether an error concerns no user: the content has changed or does
// not exist any more, or the cache is behind, and the next step is decided again.
func Transient(err error) bool {
	return errors.Is(err, cluster.ErrChanged) || errors.Is(err, cluster.ErrGone) || errors.Is(err, errBehind)
}
