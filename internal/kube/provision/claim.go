package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/migration"
	"github.com/holdfast-csi/holdfast/internal/kube/topology"
)

// recheckPeriod is the pause after which a claim is processed again that waits for a
// change of a watched object.
const recheckPeriod = time.Minute

// foreignRecheck is the pause if another process may have begun the volume of a claim that
// was selected for this node.
const foreignRecheck = 2 * time.Second

// sourceRecheck is the pause if the source of a claim is not watched.
const sourceRecheck = 5 * time.Second

// waiting is an error that only a change of a watched object ends.
type waiting struct{ error }

func waitFor(format string, arguments ...any) error {
	return waiting{fmt.Errorf(format, arguments...)}
}

// syncClaim performs the next step for a claim, by its UID.
func (c *Controller) syncClaim(ctx context.Context, key string) (time.Duration, error) {
	uid := types.UID(key)
	pvc := c.claim(uid)
	if intent, begun := c.intents.Get(key); begun {
		pvc, err := c.claimOf(ctx, pvc, intent)
		if err != nil {
			return 0, err
		}
		return c.resume(ctx, pvc, intent)
	}
	if pvc == nil || pvc.Spec.VolumeName != "" {
		c.forgetBound(uid)
		return 0, nil
	}
	if saved := c.progress.of(uid).saved; saved != "" && c.pending(pvc) {
		gone, pause, err := c.isGone(ctx, pvc, saved)
		if !gone {
			return pause, err
		}
		c.progress.note(uid, func(s *step) { s.saved = "" })
	}
	if !c.needsVolume(pvc) {
		return c.nameConflict(pvc)
	}
	class, found := c.classes.Get(className(pvc))
	if !found {
		return c.explainWait(pvc, fmt.Sprintf("storageclass.storage.k8s.io %q not found", className(pvc)))
	}
	class, err := c.migration.Class(class)
	if err != nil {
		return c.explainWait(pvc, err.Error())
	}
	return c.begin(ctx, pvc, class)
}

// isGone reports whether the PersistentVolume that was saved for a claim is gone; else, when to
// look again. A watch that was interrupted may have shown neither its creation nor its end, so
// that the API server is asked about what the cache lacks.
func (c *Controller) isGone(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, version string,
) (gone bool, again time.Duration, err error) {
	if !c.volumes.ReachedVersion(version) {
		return false, c.options.CacheLag, nil
	}
	name := c.volumeName(pvc)
	if _, cached := c.volumes.Get(name); cached {
		again, err = c.nameConflict(pvc)
		return false, again, err
	}
	_, err = c.env.Core.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, 0, nil
	case err != nil:
		return false, 0, fmt.Errorf("is there a PersistentVolume %q: %w", name, err)
	}
	return false, c.options.CacheLag, nil
}

func (c *Controller) claim(uid types.UID) *corev1.PersistentVolumeClaim {
	for _, pvc := range c.claims.By(cluster.ClaimByUID(), string(uid)) {
		return pvc
	}
	return nil
}

// needsVolume reports whether this process is to create a volume for a claim.
func (c *Controller) needsVolume(pvc *corev1.PersistentVolumeClaim) bool {
	if !c.pending(pvc) || !c.serves(pvc) || pvc.DeletionTimestamp != nil || c.progress.of(pvc.UID).saved != "" {
		return false
	}
	_, exists := c.volumes.Get(c.volumeName(pvc))
	return !exists
}

// nameConflict reports that another object has the name of a claim's PersistentVolume.
func (c *Controller) nameConflict(pvc *corev1.PersistentVolumeClaim) (time.Duration, error) {
	pv, exists := c.volumes.Get(c.volumeName(pvc))
	if !exists || !c.pending(pvc) || !c.serves(pvc) || pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == pvc.UID {
		return 0, nil
	}
	return c.explainWait(pvc, fmt.Sprintf("PersistentVolume %q exists and is not for this claim; it is of %s; delete or rename it",
		pv.Name, describeVolume(pv)))
}

// explainWait writes an event that says why a claim waits, and returns when the claim is
// due again. An equal event is repeated rarely.
func (c *Controller) explainWait(pvc *corev1.PersistentVolumeClaim, why string) (time.Duration, error) {
	if c.reports(pvc) && c.progress.shouldReport(pvc.UID, why) {
		c.warn(pvc, reasonFailed, "%s", why)
	}
	return recheckPeriod, nil
}

// reports reports whether this process writes events on a claim. Without a selected node,
// the node of the first rank writes them.
func (c *Controller) reports(pvc *corev1.PersistentVolumeClaim) bool {
	return c.env.Scope.Central() || selectedNode(pvc) == c.env.Scope.Node || c.csiNodes != nil && c.rank(pvc.UID) == 0
}

// begin creates the volume of a claim if the claim is due.
func (c *Controller) begin(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (time.Duration, error) {
	if !c.provisions(class.Provisioner) {
		if pvc.Annotations[migration.MigratedToAnnotation] == c.env.Driver {
			return c.explainWait(pvc, fmt.Sprintf("StorageClass %q names the in-tree plugin %q; create a class with provisioner %q, "+
				"since the parameters of that plugin have no translation", class.Name, class.Provisioner, c.env.Driver))
		}
		return 0, nil // the class was created again, for another driver
	}
	if selectedNode(pvc) == "" && waitsForConsumer(class) && !c.maySelectBySource(pvc) {
		return 0, nil
	}
	known := c.progress.of(pvc.UID)
	if pause := time.Until(known.slow); pause > 0 && known.slowClass == class.UID {
		return pause, nil
	}
	if c.env.Scope.Labelled && !waitsForConsumer(class) {
		// As below: the elected process does not know the intents. The node that completes
		// this one undoes it soon, since the claim is not selected for it.
		if begun, err := c.intents.Foreign(ctx, string(pvc.UID)); begun || err != nil {
			return foreignRecheck, err
		}
	}
	if !c.env.Scope.Central() && selectedNode(pvc) == "" {
		if begun, err := c.intents.Foreign(ctx, string(pvc.UID)); begun || err != nil {
			// The volume may exist elsewhere; Unserved reports an intent that waits.
			return recheckPeriod, err
		}
		// The claim is not read live, since every node would. The write that selects this
		// node fails if the claim differs from the cache.
		selected, after, err := c.claimForNode(ctx, pvc, class)
		if selected == nil {
			return after, err
		}
		return c.attempt(ctx, selected, class)
	}
	pvc, err := c.current(ctx, pvc, known)
	if pvc == nil || err != nil {
		return 0, err
	}
	return c.attempt(ctx, pvc, class)
}

// current reads the claim live if the cache may lack changes by another process: a claim
// that was bound and deleted long ago must not get a volume again
// (external-provisioner#1469). Nor must one that had a PersistentVolume before: an administrator
// may have retained and deleted that, and the claim. It returns nil if the claim needs no volume.
func (c *Controller) current(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, known step,
) (*corev1.PersistentVolumeClaim, error) {
	if !known.saving && time.Since(c.started) > c.options.CacheLag && c.isNew(pvc, known) {
		return pvc, nil
	}
	live, err := c.env.Core.CoreV1().PersistentVolumeClaims(pvc.Namespace).Get(ctx, pvc.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", claim.Describe(pvc), err)
	case live.UID != pvc.UID || !c.needsVolume(live):
		return nil, nil
	}
	return live, nil
}

// isNew reports whether the watch has just reported a claim that was just created. A watch
// that was interrupted for long reports claims of that time before their deletion.
func (c *Controller) isNew(pvc *corev1.PersistentVolumeClaim, known step) bool {
	return time.Since(known.updated) < c.options.CacheLag && time.Since(pvc.CreationTimestamp.Time) < c.options.CacheLag
}

// attempt prepares the request, writes the intent and creates the volume.
func (c *Controller) attempt(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (time.Duration, error) {
	defer c.announce(pvc)()
	began, key := time.Now(), string(pvc.UID)
	prepared, values, err := c.prepare(ctx, pvc, class)
	if err != nil {
		if !errors.Is(err, claim.ErrPopulated) {
			c.metrics.provision(class.Name, sourceKind(pvc), began, err)
		}
		return c.unprepared(ctx, pvc, class, err)
	}
	if owner := c.progress.reserve(pvc.UID, prepared.Volume.Name); owner != pvc.UID {
		return c.shares(pvc, prepared.Volume.Name, owner)
	}
	if prepared, err = c.intents.Put(ctx, key, prepared); err != nil {
		return 0, c.failed(pvc, class.Name, err)
	}
	if prepared.identity() != c.identity { // another process was first: its request may have been sent
		c.claimQueue.Add(key)
		return 0, nil
	}
	c.progress.note(pvc.UID, func(s *step) { s.untried, s.slowClass = true, class.UID })
	if err := c.hit("create/intent"); err != nil {
		return 0, err
	}
	return c.createAndSave(ctx, pvc, prepared, began, func() (map[string]string, error) { return values, nil })
}

// unprepared handles a claim for which no request could be prepared.
func (c *Controller) unprepared(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, err error,
) (time.Duration, error) {
	var wait waiting
	switch {
	case errors.Is(err, claim.ErrPopulated):
		if c.progress.shouldReport(pvc.UID, err.Error()) {
			c.info(pvc, reasonProvisioning, "Assuming an external populator will provision the volume")
		}
		return 0, nil
	case errors.Is(err, errElsewhere):
		return c.rescheduleElsewhere(ctx, pvc, class, err)
	case errors.Is(err, topology.ErrNodeGone):
		_ = c.failed(pvc, class.Name, err)
		return 0, c.reschedule(ctx, pvc, selectedNode(pvc))
	case errors.As(err, &wait):
		after, err := c.explainWait(pvc, fmt.Sprintf("failed to provision volume with StorageClass %q: %v", class.Name, err))
		if c.env.Scope.Labelled && sourceOf(pvc) != "" {
			after = sourceRecheck
		}
		return after, err
	}
	return 0, c.failed(pvc, class.Name, err)
}
