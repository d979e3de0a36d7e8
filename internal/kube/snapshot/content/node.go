package content

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// Own labels a content that is this node's by its volumes. After the deletion of the
// volumes only the label names the snapshot's node, for its deletion and for a restore.
func (w *Writer[T]) Own(ctx context.Context, object T, owner *Owner) (T, error) {
	if owner.scope.Central() || object.GetDeletionTimestamp() != nil {
		return object, nil
	}
	return w.Claim(ctx, object, owner)
}

// Claim labels a content as this node's, unless it has become another's.
func (w *Writer[T]) Claim(ctx context.Context, object T, owner *Owner) (T, error) {
	if labelled(object) {
		return object, nil
	}
	unclaimed := func(object T) bool { return !labelled(object) }
	return w.write(ctx, object, unclaimed, func(object T) (T, error) {
		return w.Store.Patch(ctx, w.API, object, cluster.TestVersion(object.GetResourceVersion()),
			cluster.SetLabel(object, claim.ManagedByLabel, claim.NodeLabelValue(owner.scope.Node)))
	})
}

func labelled(object metav1.Object) bool {
	return object.GetLabels()[claim.ManagedByLabel] != claim.AnyNode
}

// Orphan removes the finalizer of a content that has no owner and needs no
// driver, when this node may. Before that it returns the time until then.
func (w *Writer[T]) Orphan(ctx context.Context, object T, owner *Owner) (time.Duration, error) {
	if cluster.RemoveFinalizers(object, w.Keys.Finalizer) == nil {
		return 0, nil
	}
	if wait := time.Until(owner.orphanDue(object)); wait > 0 {
		return wait, nil
	}
	return 0, w.Release(ctx, object)
}
