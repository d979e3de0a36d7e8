package provision

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// patchTries is how often a patch is repeated after another client has changed the
// object.
const patchTries = 4

// removeFinalizers removes finalizers of a PersistentVolume with one patch.
func (c *Controller) removeFinalizers(ctx context.Context, pv *corev1.PersistentVolume, finalizers ...string) error {
	return c.patchVolume(ctx, pv, func(pv *corev1.PersistentVolume) []cluster.Op {
		return cluster.RemoveFinalizers(pv, finalizers...)
	})
}

// patchVolume patches a PersistentVolume, guarded by what was read; when that
// has changed (external-provisioner#1217), it is read again.
func (c *Controller) patchVolume(ctx context.Context, pv *corev1.PersistentVolume, make func(*corev1.PersistentVolume) []cluster.Op) error {
	volumes := c.env.Core.CoreV1().PersistentVolumes()
	var err error
	for range patchTries {
		ops := make(pv)
		if ops == nil {
			return nil
		}
		var written *corev1.PersistentVolume
		written, err = volumes.Patch(ctx, pv.Name, types.JSONPatchType, cluster.JSONPatch(ops...), metav1.PatchOptions{})
		if err == nil {
			if written.DeletionTimestamp == nil || len(written.Finalizers) > 0 {
				c.volumes.Wrote(written)
			}
			return nil
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		if !outdated(err) {
			break
		}
		live, again := volumes.Get(ctx, pv.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(again) {
			return nil
		}
		if again != nil {
			err = again
			break
		}
		if live.UID != pv.UID {
			return nil
		}
		pv = live
	}
	return fmt.Errorf("finalizers of PersistentVolume %q: %w", pv.Name, err)
}

// outdated recognises the refusal of a patch whose object has changed: 409, or
// 422 for a JSON patch of which a test failed.
func outdated(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsConflict(err) || errors.As(err, &status) && status.Status().Code == http.StatusUnprocessableEntity
}
