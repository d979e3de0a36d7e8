package provision

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// holder asks the API server which PersistentVolume has a volume, by driver and handle.
// A cache may be behind, and the answer decides about data.
func (c *Controller) holder(ctx context.Context, handle string) (found lifecycle.Holder, err error) {
	err = c.volumes.Read(ctx, "", func(all iter.Seq[*corev1.PersistentVolume]) {
		found = lifecycle.FindHolder(all, c.env.Driver, handle, c.elsewhereVolume)
	})
	return found, err
}

// cachedHolder reports whether the cache has another PersistentVolume than that of the
// intent that names a volume. Then the API server decides.
func (c *Controller) cachedHolder(handle string, intent volumeIntent) bool {
	same := c.volumes.By(cluster.VolumeByHandle(), cluster.HandleKey(c.env.Driver, handle))
	return slices.ContainsFunc(same, func(pv *corev1.PersistentVolume) bool {
		return pv.Name != intent.Volume.Name || !c.matches(pv, intent)
	})
}

// elsewhereVolume reports whether a PersistentVolume cannot be on this node. One
// without affinity can be.
func (c *Controller) elsewhereVolume(pv *corev1.PersistentVolume) bool {
	return pv.Spec.NodeAffinity != nil && pv.Spec.NodeAffinity.Required != nil && !c.env.Scope.OwnsVolume(pv)
}

// holderError names the PersistentVolume that has the volume which the driver returned. It
// forgets the driver's answer: the volume may be deleted with the PersistentVolume.
func (c *Controller) holderError(intent volumeIntent, handle string, holder lifecycle.Holder) error {
	c.progress.note(intent.Volume.Spec.ClaimRef.UID, func(s *step) { s.made = nil })
	return fmt.Errorf("the driver answered CreateVolume %q with volume %q, which is that of PersistentVolume %q; the volume is kept",
		intent.Volume.Name, handle, holder.Name)
}

// dropDuplicate discards an intent whose volume has the name of another claim's intent.
// The driver finds volumes by name, so both are one volume, and the other intent
// completes it.
func (c *Controller) dropDuplicate(ctx context.Context, intent volumeIntent, owner types.UID) (time.Duration, error) {
	uid := intent.Volume.Spec.ClaimRef.UID
	c.log.WarnContext(ctx, "two claims share the name of a volume; the second one waits",
		"volume", intent.Volume.Name, "claim", intent.claimKey(), "first", owner)
	c.drop(uid, intent)
	c.claimQueue.Add(string(uid))
	return 0, nil
}

// shares explains that a claim waits because another one's volume has the name.
func (c *Controller) shares(pvc *corev1.PersistentVolumeClaim, name string, owner types.UID) (time.Duration, error) {
	return c.explainWait(pvc, fmt.Sprintf("the volume of the claim with UID %s is named %q too; the UIDs begin alike: "+
		"give the provisioner a greater --volume-name-uuid-length", owner, name))
}
