package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// due returns the next step of this process for a PersistentVolume.
func (c *Controller) due(pv *corev1.PersistentVolume) lifecycle.Due {
	if !c.env.Scope.OwnsVolume(pv) && !c.env.Scope.Unplaced(pv) {
		return lifecycle.DueNothing
	}
	return lifecycle.ReclaimDue(pv)
}

// syncVolume performs the next step for a PersistentVolume.
func (c *Controller) syncVolume(ctx context.Context, name string) (time.Duration, error) {
	pv, found := c.volumes.Get(name)
	if !found || !c.made(pv) {
		return 0, nil
	}
	due := c.due(pv)
	if due == lifecycle.DueNothing {
		return 0, nil
	}
	if own, err := c.env.OwnsVolume(ctx, pv); err != nil || !own {
		return 0, err
	}
	switch due {
	case lifecycle.DueProtect:
		return 0, c.patchVolume(ctx, pv, func(pv *corev1.PersistentVolume) []cluster.Op {
			return cluster.AddFinalizers(pv, claim.ProvisionerFinalizer)
		})
	case lifecycle.DueRelease:
		// Without the finalizer the object may be deleted at once, and no longer shows that
		// the intent is complete.
		if err := c.forgetIntent(ctx, pv); err != nil {
			return 0, err
		}
		return 0, c.releaseRetained(ctx, pv)
	case lifecycle.DueDelete:
		return c.reclaim(ctx, pv)
	}
	return 0, nil
}

// releaseRetained removes the finalizer from a PersistentVolume that keeps its volume. The cache may
// lack that an administrator has given the volume up meanwhile: without the finalizer, the
// deletion of the object would leave the volume behind.
func (c *Controller) releaseRetained(ctx context.Context, pv *corev1.PersistentVolume) error {
	return c.patchVolume(ctx, pv, func(pv *corev1.PersistentVolume) []cluster.Op {
		if c.due(pv) != lifecycle.DueRelease {
			return nil
		}
		ops := cluster.RemoveFinalizers(pv, claim.ProvisionerFinalizer)
		return append([]cluster.Op{cluster.TestVersion(pv.ResourceVersion)}, ops...)
	})
}

// behindCache is the pause if a cache may lack what keeps a volume.
const behindCache = time.Second

// reclaim deletes the volume of a released PersistentVolume, then the object.
func (c *Controller) reclaim(ctx context.Context, pv *corev1.PersistentVolume) (time.Duration, error) {
	if reason := c.keptBy(pv); reason != "" {
		// A change of the attachment or of the other object queues it again.
		c.info(pv, reasonFailedDelete, "%s", reason)
		return recheckPeriod, nil
	}
	began := time.Now()
	secrets, err := c.prepareDeletion(ctx, pv)
	if err == nil {
		// Last: what takes time is done, and what was read is not old when the driver is called.
		live, after, err := c.readToDelete(ctx, pv)
		if live == nil || err != nil {
			return after, err
		}
		if !sameSecret(live, pv) {
			return behindCache, nil
		}
		pv = live
	}
	if err == nil {
		err = c.deleteVolume(ctx, pv, secrets)
	}
	if ctx.Err() == nil {
		c.metrics.deletion(pv.Spec.StorageClassName, began, err)
	}
	if err != nil {
		return 0, err
	}
	if c.options.Observer != nil {
		c.options.Observer.Deleted(pv)
	}
	return 0, nil
}

// readToDelete reads a PersistentVolume whose volume may be deleted: that cannot be undone, so the
// object's own state decides, not a cache, and the caches have to have what keeps the volume. It
// returns nil if the volume is not to be deleted, or not yet.
func (c *Controller) readToDelete(
	ctx context.Context, pv *corev1.PersistentVolume,
) (live *corev1.PersistentVolume, after time.Duration, err error) {
	live, err = c.env.Core.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("read PersistentVolume %q before its volume is deleted: %w", pv.Name, err)
	case live.UID != pv.UID || !c.made(live) || c.due(live) != lifecycle.DueDelete:
		return nil, 0, nil // the watch delivers its new state
	case !c.volumes.Reached(live):
		return nil, behindCache, nil // it may lack an object that names the volume
	}
	if current, err := c.attached.current(ctx); err != nil || !current {
		return nil, behindCache, err
	}
	if reason := c.keptBy(live); reason != "" {
		c.info(live, reasonFailedDelete, "%s", reason)
		return nil, recheckPeriod, nil
	}
	switch twin, err := c.unwatchedTwin(ctx, live); {
	case err != nil:
		return nil, 0, fmt.Errorf("before volume %q is deleted: %w", live.Spec.CSI.VolumeHandle, err)
	case twin != "": // once it is labelled, keptBy reports it
		c.info(live, reasonFailedDelete, "PersistentVolume %q names the same volume", twin)
		return nil, recheckPeriod, nil
	}
	return live, 0, nil
}

// keptBy returns why a volume is not deleted yet: it is attached to a node, or another
// PersistentVolume names it; "" if it may be deleted.
func (c *Controller) keptBy(pv *corev1.PersistentVolume) string {
	same := c.volumes.By(cluster.VolumeByHandle(), cluster.HandleKey(c.env.Driver, pv.Spec.CSI.VolumeHandle))
	for _, pv := range same {
		if node, attached := c.attached.to(pv.Name); attached && !c.elsewhereVolume(pv) {
			return fmt.Sprintf("persistentvolume %s is still attached to node %s", pv.Name, node)
		}
	}
	if twin := lifecycle.FindTwin(slices.Values(same), pv, c.elsewhereVolume); twin != "" {
		return fmt.Sprintf("PersistentVolume %q names the same volume", twin)
	}
	return ""
}

// prepareDeletion does what precedes DeleteVolume and deletes nothing: it removes the intent, notes
// which node deletes a volume that could be of any, and reads the secret.
func (c *Controller) prepareDeletion(ctx context.Context, pv *corev1.PersistentVolume) (secrets map[string]string, err error) {
	if err := c.forgetIntent(ctx, pv); err != nil {
		return nil, err
	}
	if err := c.noteDeletingNode(ctx, pv); err != nil {
		return nil, err
	}
	_, can, err := c.capabilities(ctx)
	if err == nil && !can.CreateDelete {
		err = fmt.Errorf("driver %s does not delete volumes (CREATE_DELETE_VOLUME); set the reclaim policy of PersistentVolume %q to Retain",
			c.env.Driver, pv.Name)
	}
	if err == nil {
		secrets, err = c.deletionSecret(ctx, pv)
	}
	if err != nil && ctx.Err() == nil {
		c.warn(pv, reasonFailedDelete, "%v", err)
	}
	return secrets, err
}

// noteDeletingNode writes this node into a PersistentVolume that does not say where its volume is.
// After a crash between DeleteVolume and the end of the object, no driver has the volume.
func (c *Controller) noteDeletingNode(ctx context.Context, pv *corev1.PersistentVolume) error {
	if !c.env.Scope.Unplaced(pv) || pv.Annotations[claim.DeletingNodeAnnotation] == c.env.Scope.Node {
		return nil
	}
	_, err := c.volumes.Merge(ctx, c.env.Core.CoreV1().PersistentVolumes(), pv, map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{claim.DeletingNodeAnnotation: c.env.Scope.Node}},
	})
	if err != nil && !errors.Is(err, cluster.ErrGone) {
		return fmt.Errorf("note that node %q deletes the volume of PersistentVolume %q: %w", c.env.Scope.Node, pv.Name, err)
	}
	return nil
}

func (c *Controller) deleteVolume(ctx context.Context, pv *corev1.PersistentVolume, secrets map[string]string) (err error) {
	ctx, end := c.deletionSpan(ctx, pv)
	defer func() { end(err) }()
	if err := c.callDelete(ctx, pv, secrets); err != nil {
		if ctx.Err() == nil {
			c.warn(pv, reasonFailedDelete, "%v", err)
		}
		return err
	}
	if err := c.hit("delete/called"); err != nil {
		return err
	}
	err = c.env.Core.CoreV1().PersistentVolumes().Delete(ctx, pv.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pv.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("volume %q is deleted; delete PersistentVolume %q: %w", pv.Spec.CSI.VolumeHandle, pv.Name, err)
	}
	if err := c.hit("delete/removed"); err != nil {
		return err
	}
	own := []string{claim.ProvisionerFinalizer}
	if c.options.AttachFinalizer != "" {
		own = append(own, c.options.AttachFinalizer)
	}
	return c.removeFinalizers(ctx, pv, own...)
}

// forgetIntent removes the intent, so that a crash does not create the volume again.
func (c *Controller) forgetIntent(ctx context.Context, pv *corev1.PersistentVolume) error {
	if pv.Spec.ClaimRef == nil || !c.intents.Stored(string(pv.Spec.ClaimRef.UID)) {
		return nil
	}
	if intent, found := c.intents.Get(string(pv.Spec.ClaimRef.UID)); found && !c.matches(pv, intent) {
		return nil // the intent of another volume
	}
	return c.intents.RemoveNow(ctx, string(pv.Spec.ClaimRef.UID))
}

func (c *Controller) callDelete(ctx context.Context, pv *corev1.PersistentVolume, secrets map[string]string) error {
	calling, cancel := c.env.Call(ctx)
	defer cancel()
	return c.env.CSI.DeleteVolume(calling, &csi.DeleteVolumeRequest{VolumeId: pv.Spec.CSI.VolumeHandle, Secrets: secrets})
}

// sameSecret reports whether two versions of an object name the same secret for DeleteVolume.
func sameSecret(a, b *corev1.PersistentVolume) bool {
	one, known := claim.DeletionSecret(a)
	other, also := claim.DeletionSecret(b)
	return known == also && equality.Semantic.DeepEqual(one, other) &&
		lifecycle.WithoutSecret(a.Annotations) == lifecycle.WithoutSecret(b.Annotations)
}

// deletionSecret reads the secret that the object names, or its class if an older version
// created the object. Without the secret the volume is not deleted: most drivers would
// return success.
func (c *Controller) deletionSecret(ctx context.Context, pv *corev1.PersistentVolume) (map[string]string, error) {
	reference, known := claim.DeletionSecret(pv)
	if !known {
		var err error
		if reference, err = c.classSecret(pv); err != nil {
			return nil, err
		}
	}
	values, err := c.env.Secret(ctx, reference)
	if apierrors.IsNotFound(err) {
		if lifecycle.WithoutSecret(pv.Annotations) {
			return nil, nil
		}
		return nil, fmt.Errorf("the secret for DeleteVolume is missing: %w; create it again, or annotate the PersistentVolume with %s=true "+
			"to delete the volume without it", err, claim.DeleteWithoutSecretAnnotation)
	}
	return values, err
}

func (c *Controller) classSecret(pv *corev1.PersistentVolume) (*corev1.SecretReference, error) {
	class, found := c.classes.Get(pv.Spec.StorageClassName)
	reference := pv.Spec.ClaimRef
	if !found || class.Provisioner != c.env.Driver || reference == nil {
		return nil, nil
	}
	parsed, err := claim.ParseClass(class)
	if err != nil {
		return nil, err
	}
	template, named := parsed.Secrets[claim.SecretProvision]
	if !named {
		return nil, nil
	}
	// The claim is gone, and with it its annotations.
	stub := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: reference.Namespace, Name: reference.Name}}
	return template.Resolve(claim.VolumeTokens(stub, pv.Name))
}
