package resize

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// begin writes the intent to the claim's status. It returns cluster.ErrChanged if the claim
// has changed since the decision.
func (c *Controller) begin(
	ctx context.Context, s subject, write func(*corev1.PersistentVolumeClaim),
) (subject, error) {
	after := s.claim.DeepCopy()
	write(after)
	written, err := c.patchClaim(ctx, s.claim, after)
	return subject{written, s.volume}, err
}

// record writes an outcome. An outcome stays true after other changes of the claim, so
// that record reads a changed claim again and writes the outcome to it. It never returns
// cluster.ErrChanged, after which the driver would be called again at once.
func (c *Controller) record(ctx context.Context, s subject, write func(*corev1.PersistentVolumeClaim)) error {
	for attempt := 0; ; attempt++ {
		_, err := c.begin(ctx, s, write)
		switch {
		case !errors.Is(err, cluster.ErrChanged):
			return err
		case attempt == conflictRetries:
			return opaque(err)
		}
		if s.claim, err = c.refresh(ctx, s.claim); err != nil {
			return err
		}
	}
}

// refresh reads the live claim.
func (c *Controller) refresh(
	ctx context.Context, old *corev1.PersistentVolumeClaim,
) (*corev1.PersistentVolumeClaim, error) {
	return c.claims.Live(ctx, c.env.Core.CoreV1().PersistentVolumeClaims(old.Namespace), old)
}

// patchClaim writes the difference, if there is one, guarded by the resourceVersion of
// the old claim.
func (c *Controller) patchClaim(
	ctx context.Context, before, after *corev1.PersistentVolumeClaim,
) (*corev1.PersistentVolumeClaim, error) {
	metadata, status := map[string]any{}, difference(before, after)
	if annotation := annotationDifference(before, after, claim.NodeExpansionNotRequiredAnnotation); annotation != nil {
		metadata["annotations"] = annotation
	}
	if len(metadata)+len(status) == 0 {
		return before, nil
	}
	metadata["resourceVersion"] = before.ResourceVersion
	written, err := c.claims.Merge(ctx, c.env.Core.CoreV1().PersistentVolumeClaims(before.Namespace), before,
		map[string]any{"metadata": metadata, "status": status}, "status")
	if err != nil {
		return nil, fmt.Errorf("write the status of the claim: %w", err)
	}
	return written, nil
}

// difference returns the merge patch (RFC 7386) from one status to another, for the
// fields that this controller writes.
func difference(before, after *corev1.PersistentVolumeClaim) map[string]any {
	patch := map[string]any{}
	a, b := before.Status, after.Status
	sizes := func(field string, a, b corev1.ResourceList) {
		old, had := a[corev1.ResourceStorage]
		size, has := b[corev1.ResourceStorage]
		if has && (!had || old.Cmp(size) != 0) {
			patch[field] = map[string]any{string(corev1.ResourceStorage): size.String()}
		}
	}
	sizes("capacity", a.Capacity, b.Capacity)
	sizes("allocatedResources", a.AllocatedResources, b.AllocatedResources)
	if state, old := b.AllocatedResourceStatuses[corev1.ResourceStorage], a.AllocatedResourceStatuses[corev1.ResourceStorage]; state != old {
		patch["allocatedResourceStatuses"] = map[string]any{string(corev1.ResourceStorage): orNull(state)}
	}
	if !equality.Semantic.DeepEqual(a.Conditions, b.Conditions) {
		patch["conditions"] = b.Conditions
	}
	if !equality.Semantic.DeepEqual(a.CurrentVolumeAttributesClassName, b.CurrentVolumeAttributesClassName) {
		patch["currentVolumeAttributesClassName"] = b.CurrentVolumeAttributesClassName
	}
	if !equality.Semantic.DeepEqual(a.ModifyVolumeStatus, b.ModifyVolumeStatus) {
		patch["modifyVolumeStatus"] = b.ModifyVolumeStatus
	}
	return patch
}

func annotationDifference(before, after metav1.Object, key string) map[string]any {
	old, had := before.GetAnnotations()[key]
	value, has := after.GetAnnotations()[key]
	switch {
	case had && !has:
		return map[string]any{key: nil}
	case has && (!had || old != value):
		return map[string]any{key: value}
	}
	return nil
}

// orNull returns the value, or null, which removes the member in a merge patch.
func orNull[T ~string](value T) any {
	if value == "" {
		return nil
	}
	return value
}

// patchVolume merges into the PersistentVolume. It never returns cluster.ErrGone or
// cluster.ErrChanged, which are about the claim.
func (c *Controller) patchVolume(ctx context.Context, volume *corev1.PersistentVolume, change map[string]any) error {
	_, err := c.volumes.Merge(ctx, c.env.Core.CoreV1().PersistentVolumes(), volume, change)
	if errors.Is(err, cluster.ErrGone) || errors.Is(err, cluster.ErrChanged) {
		err = opaque(err)
	}
	if err != nil {
		return fmt.Errorf("write PersistentVolume %s: %w", volume.Name, err)
	}
	return nil
}

// opaque returns an error with the same text that wraps none.
func opaque(err error) error { return errors.New(err.Error()) }

// unless returns nil if err is harmless, otherwise err.
func unless(harmless, err error) error {
	if errors.Is(err, harmless) {
		return nil
	}
	return err
}
