package resize

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// podsPage limits one page of a list of pods.
const podsPage = 200

// usedBy returns the user of a volume that the driver refused to expand in use; ""
// if no user is known. Without such a refusal it makes no call.
func (c *Controller) usedBy(ctx context.Context, s subject) string {
	if c.options.IgnoreInUse || !c.memories.of(s.claim.UID).expand.NeedsIdle(time.Now()) || unused(s.claim) {
		return ""
	}
	if c.attachments != nil {
		return c.attachedTo(s.volume.Name)
	}
	if !c.blindToPods.Load() {
		by, err := c.podUsing(ctx, s.claim)
		if err == nil {
			return by
		}
		// An unneeded call is harmless: the driver rejects it.
		if apierrors.IsForbidden(err) {
			c.blindToPods.Store(true)
		}
		c.env.Logger.DebugContext(ctx, "cannot see which pods use a claim", "claim", s.key(), "error", err)
	}
	if known := conditionStatus(s.claim, corev1.PersistentVolumeClaimUnused); known == corev1.ConditionFalse {
		return "a pod (the claim's condition Unused is False)"
	}
	return ""
}

func conditionStatus(
	pvc *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType,
) corev1.ConditionStatus {
	for _, c := range pvc.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// podUsing lists the pods of one namespace from the API server: a cache of all pods
// would cost too much memory for this (external-resizer#211).
func (c *Controller) podUsing(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (string, error) {
	options := metav1.ListOptions{Limit: podsPage, FieldSelector: fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	).String()}
	for {
		page, err := c.env.Core.CoreV1().Pods(pvc.Namespace).List(ctx, options)
		if err != nil {
			return "", fmt.Errorf("list the pods of namespace %s: %w", pvc.Namespace, err)
		}
		for i := range page.Items {
			if uses(&page.Items[i], pvc.Name) {
				return "pod " + page.Items[i].Name, nil
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return "", nil
		}
	}
}

func uses(pod *corev1.Pod, claimName string) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	for _, volume := range pod.Spec.Volumes {
		if source := volume.PersistentVolumeClaim; source != nil && source.ClaimName == claimName {
			return true
		}
		if volume.Ephemeral != nil && claim.EphemeralClaimName(pod.Name, volume.Name) == claimName {
			return true
		}
	}
	return false
}

// attachedTo returns the node that a volume is attached to. An attachment that is not
// finished counts: the volume may be published by now.
func (c *Controller) attachedTo(volume string) string {
	for _, attachment := range c.attachments.By(cluster.AttachmentByVolume(), volume) {
		return "node " + attachment.Spec.NodeName
	}
	return ""
}
