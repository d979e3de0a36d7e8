package provision

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// removeFinalizers removes finalizers of a PersistentVolume with one patch.
func (c *Controller) removeFinalizers(ctx context.Context, pv *corev1.PersistentVolume, finalizers ...string) error {
	return c.patchVolume(ctx, pv, func(pv *corev1.PersistentVolume) []cluster.Op {
		return cluster.RemoveFinalizers(pv, finalizers...)
	})
}

// patchVolume patches a PersistentVolume, and again if another client has changed it
// meanwhile (external-provisioner#1217). It returns nil for one that is gone, and for one
// that does not need the patch, also if another client made it unnecessary meanwhile.
func (c *Controller) patchVolume(
	ctx context.Context, pv *corev1.PersistentVolume, make func(*corev1.PersistentVolume) []cluster.Op,
) error {
	volumes := c.env.Core.CoreV1().PersistentVolumes()
	needed := func(pv *corev1.PersistentVolume) bool { return make(pv) != nil }
	if !needed(pv) {
		return nil
	}
	live, err := c.volumes.Retry(ctx, volumes, pv, needed, func(pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
		return c.volumes.Patch(ctx, volumes, pv, make(pv)...)
	})
	if err == nil || errors.Is(err, cluster.ErrGone) || errors.Is(err, cluster.ErrChanged) && !needed(live) {
		return nil
	}
	return fmt.Errorf("finalizers of PersistentVolume %q: %w", pv.Name, err)
}
