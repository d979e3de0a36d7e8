package health

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// show writes the conditions to a claim's status if it differs.
func (c *Controller) show(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, wanted []corev1.VolumeHealthCondition,
) {
	if sameSet(conditionsIn(claim), wanted, identical) {
		return
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.dropped {
		return // the first write of this poll was dropped
	}
	answer, err := c.claims.Merge(ctx, c.env.Core.CoreV1().PersistentVolumeClaims(claim.Namespace), claim,
		change(claim, wanted, time.Now()), "status")
	switch {
	case errors.Is(err, cluster.ErrGone), apierrors.IsConflict(err):
		return // the claim was deleted, or replaced by another of its name
	case err != nil:
		if !ended(ctx, err) {
			c.log.WarnContext(ctx, "cannot write a claim's health; retrying at the next poll",
				"claim", cluster.KeyOf(claim), "error", err)
		}
		return
	}
	if len(wanted) > 0 && len(conditionsIn(answer)) == 0 {
		c.dropped = true
		c.log.InfoContext(ctx, "the API server drops pvc.status.healthStatus: "+
			"the feature gate CSIVolumeHealth is off, or the API server is older than Kubernetes 1.37; polling once an hour",
			"claim", cluster.KeyOf(claim))
		return
	}
	c.log.InfoContext(ctx, "volume health changed",
		"claim", cluster.KeyOf(claim), "volume", claim.Spec.VolumeName, "conditions", describe(wanted))
}

// change replaces all conditions regardless of the claim's resourceVersion: only the
// health monitor writes them. The UID guards a new claim of the same name. The time
// changes with the set of (status, reason), not with a message.
func change(claim *corev1.PersistentVolumeClaim, wanted []corev1.VolumeHealthCondition, now time.Time) map[string]any {
	since := metav1.NewTime(now)
	if have := claim.Status.HealthStatus; have != nil && !have.LastTransitionTime.IsZero() && sameSet(have.HealthConditions, wanted, sameKey) {
		since = have.LastTransitionTime
	}
	return map[string]any{"status": map[string]any{"healthStatus": map[string]any{
		// A nil list becomes null, which removes all conditions.
		"healthConditions": wanted, "lastTransitionTime": since,
	}}}
}

func describe(conditions []corev1.VolumeHealthCondition) []string {
	texts := make([]string, len(conditions))
	for i, condition := range conditions {
		texts[i] = string(condition.Status) + "/" + condition.Reason
	}
	return texts
}

// retryField lets the next write test again whether the API server stores the field.
func (c *Controller) retryField() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.dropped = false
}

func (c *Controller) isDropped() bool {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.dropped
}
