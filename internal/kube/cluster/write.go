package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var (
	// ErrChanged: the object has changed since the write was prepared, or a write found
	// another one of the same name. The next try begins with its new state, so users need
	// not see the error.
	ErrChanged = errors.New("the object has changed meanwhile")
	// ErrGone: the object does not exist, or Live found another one of the same name.
	ErrGone = errors.New("the object is gone")
)

// Client is what writes need of a typed client.
type Client[T any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Patch(
		ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string,
	) (T, error)
}

// rejection is an error of the API server that is ErrChanged, unless the object is the
// one that the write was prepared for. A guard that fails is a conflict in a merge patch,
// and invalid in a JSON patch; but so is a JSON patch that the API server never accepts.
type rejection struct{ error }

func (r rejection) Is(target error) bool { return target == ErrChanged }
func (r rejection) Unwrap() error        { return r.error }

// Patch applies operations to the object if it has the same UID. It passes the answer to
// the store and returns it.
func (s *Store[T]) Patch(ctx context.Context, client Client[T], object T, ops ...Op) (T, error) {
	return s.write(ctx, client, object, types.JSONPatchType, JSONPatch(guarded(object, ops)...))
}

// Merge is Patch with a merge patch. A resourceVersion among the metadata of change
// guards against every other change.
func (s *Store[T]) Merge(
	ctx context.Context, client Client[T], object T, change map[string]any, subresources ...string,
) (T, error) {
	guarded := map[string]any{"uid": object.GetUID()}
	if metadata, ok := change["metadata"].(map[string]any); ok {
		maps.Copy(guarded, metadata)
	}
	change = maps.Clone(change)
	change["metadata"] = guarded
	return s.write(ctx, client, object, types.MergePatchType, MergePatch(change), subresources...)
}

func (s *Store[T]) write(
	ctx context.Context, client Client[T], object T, kind types.PatchType, patch []byte, subresources ...string,
) (T, error) {
	written, err := send(ctx, client, object, kind, patch, subresources...)
	if err != nil {
		return object, err
	}
	if written.GetDeletionTimestamp() == nil || len(written.GetFinalizers()) > 0 { // else the patch deleted it
		s.Wrote(written)
	}
	return written, nil
}

// PatchLive is Store.Patch for an object of a kind that the process does not cache.
func PatchLive[T Object](ctx context.Context, client Client[T], object T, ops ...Op) (T, error) {
	return send(ctx, client, object, types.JSONPatchType, JSONPatch(guarded(object, ops)...))
}

func guarded(object metav1.Object, ops []Op) []Op {
	return append([]Op{Test(object.GetUID(), "metadata", "uid")}, ops...)
}

// send returns the API server's answer to a patch, or the object unchanged.
func send[T Object](
	ctx context.Context, client Client[T], object T, kind types.PatchType, patch []byte, subresources ...string,
) (T, error) {
	written, err := client.Patch(ctx, object.GetName(), kind, patch, metav1.PatchOptions{}, subresources...)
	switch {
	case apierrors.IsNotFound(err):
		return object, fmt.Errorf("%w: %s", ErrGone, err.Error())
	case apierrors.IsConflict(err), kind == types.JSONPatchType && apierrors.IsInvalid(err):
		return object, rejection{err}
	case err != nil:
		return object, err
	}
	return written, nil
}

// Live reads the object from the API server, for steps that a stale cache must not
// decide.
func (s *Store[T]) Live(ctx context.Context, client Client[T], object T) (T, error) {
	live, err := client.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err == nil {
		s.Wrote(live)
		if live.GetUID() == object.GetUID() {
			return live, nil
		}
	}
	if err == nil || apierrors.IsNotFound(err) {
		err = ErrGone
	}
	return object, fmt.Errorf("read %s %s: %w", s.kind, KeyOf(object), err)
}

// writeTries is how often Retry tries a write.
const writeTries = 5

// Retry makes a write by Patch or Merge. If another client has changed the object at the
// same time and it still needs the write, Retry repeats the write from the new state. It
// returns the object as it is now, with ErrChanged if the write was not made.
func (s *Store[T]) Retry(
	ctx context.Context, client Client[T], object T, still func(T) bool, write func(T) (T, error),
) (T, error) {
	for try := 1; ; try++ {
		written, err := write(object)
		var rejected rejection
		if !errors.As(err, &rejected) {
			return written, err
		}
		live, err := s.Live(ctx, client, object)
		switch {
		case err != nil:
			return object, err
		case live.GetResourceVersion() == object.GetResourceVersion():
			return object, rejected.error
		case try == writeTries || !still(live):
			return live, ErrChanged
		}
		object = live
	}
}
