package host

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// plan is what an apply is going to write, worked out and checked before
// anything is.
type plan struct {
	// plain are the objects that are stored as they are given.
	plain  []manifest.Object
	claims []*corev1.PersistentVolumeClaim
	pods   []*corev1.Pod
	// needed are the drivers that have to be registered, with what needs each.
	needed map[string]string
	// warnings are the policy's.
	warnings []string
}

func claimKey(pvc *corev1.PersistentVolumeClaim) string { return store.Key(pvc.Namespace, pvc.Name) }

// plan checks the objects against each other and against what the host has. It
// writes nothing.
func (h *Host) plan(objects *manifest.Objects) (plan, error) {
	result := plan{plain: plainOf(objects), needed: map[string]string{}}
	err := h.store.View(func(tx *store.Tx) error {
		known := newState(tx)
		for _, class := range objects.Classes {
			known.classes.over[class.Name] = class
		}
		var problems []error
		for _, pvc := range objects.Claims {
			merged, err := known.mergeClaim(pvc)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			result.claims = append(result.claims, merged)
			known.claims.over[claimKey(merged)] = merged
		}
		for _, pvc := range result.claims {
			problems = append(problems, errorsOf(known.checkSource(pvc))...)
		}
		warnings, err := h.admit(known, objects)
		result.warnings, problems = warnings, append(problems, err)
		for _, pod := range objects.Pods {
			pod.UID = uuid.NewUUID()
			problems = append(problems, errorsOf(known.checkClaimsOf(pod))...)
		}
		result.pods = objects.Pods
		known.needs(&result)
		return errors.Join(append(problems, known.err)...)
	})
	return result, err
}

// plainOf lists the objects that nothing is made of.
func plainOf(objects *manifest.Objects) []manifest.Object {
	return slices.DeleteFunc(slices.Clone(objects.All), func(given manifest.Object) bool {
		return given.Kind.Kind == "PersistentVolumeClaim" || given.Kind.Kind == "Pod"
	})
}

// mergeClaim returns what is to be stored for a given claim: a new one, or the
// stored one with what may change.
func (s *state) mergeClaim(given *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	stored := s.claims.get(claimKey(given))
	if stored != nil && given.Spec.StorageClassName == nil {
		given.Spec.StorageClassName = stored.Spec.StorageClassName
	}
	if stored == nil || given.Spec.StorageClassName == nil {
		if found := s.chooseClass(given); found != nil {
			return nil, found.err
		}
	}
	given.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	given.Finalizers = []string{manifest.ClaimProtection}
	given.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
	given.UID = uuid.NewUUID()
	switch {
	case stored == nil:
		return given, nil
	case stored.DeletionTimestamp != nil:
		return nil, fmt.Errorf("%s is being deleted; delete it with --delete before it is made anew", claim.Describe(given))
	case stored.Spec.VolumeName == "" && s.creations.get(string(stored.UID)) == nil:
		given.UID, given.CreationTimestamp = stored.UID, stored.CreationTimestamp // nothing was made of it yet
		return given, nil
	}
	return changeClaim(stored, given)
}

// changeClaim lets labels, annotations and a growing request through.
func changeClaim(stored, given *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	merged := stored.DeepCopy()
	manifest.SetDefaults(merged) // an older program may have stored it
	merged.Labels, merged.Annotations = given.Labels, given.Annotations
	wanted, has := given.Spec.Resources.Requests[corev1.ResourceStorage], stored.Spec.Resources.Requests[corev1.ResourceStorage]
	if wanted.Cmp(has) < 0 && wanted.Cmp(stored.Status.Capacity[corev1.ResourceStorage]) < 0 {
		return nil, fmt.Errorf("%s: spec.resources.requests.storage: a volume cannot shrink from %s to %s",
			claim.Describe(given), has.String(), wanted.String())
	}
	merged.Spec.Resources = given.Spec.Resources
	expected := given.Spec.DeepCopy()
	expected.VolumeName = merged.Spec.VolumeName
	for name, same := range map[string]bool{
		"accessModes":      equality.Semantic.DeepEqual(expected.AccessModes, merged.Spec.AccessModes),
		"volumeMode":       claim.IsBlock(expected.VolumeMode) == claim.IsBlock(merged.Spec.VolumeMode),
		"storageClassName": equality.Semantic.DeepEqual(expected.StorageClassName, merged.Spec.StorageClassName),
		"dataSource":       equality.Semantic.DeepEqual(expected.DataSource, merged.Spec.DataSource),
		"dataSourceRef":    equality.Semantic.DeepEqual(expected.DataSourceRef, merged.Spec.DataSourceRef),
	} {
		if !same {
			return nil, fmt.Errorf("%s: spec.%s: differs from the claim that exists, and cannot be changed; --delete removes that one with its data",
				claim.Describe(given), name)
		}
	}
	return merged, nil
}

// needs collects the drivers: of claims that are given or used, and of inline volumes.
func (s *state) needs(p *plan) {
	add := func(pvc *corev1.PersistentVolumeClaim) {
		if pvc == nil {
			return
		}
		if volume := s.volumes.get(pvc.Spec.VolumeName); volume != nil {
			p.needed[volume.Spec.CSI.Driver] = claim.Describe(pvc)
		} else if class := s.classOf(pvc); class != nil {
			p.needed[class.Provisioner] = fmt.Sprintf("StorageClass %q: provisioner", class.Name)
		}
	}
	for _, pvc := range p.claims {
		add(pvc)
	}
	for _, pod := range p.pods {
		for i, volume := range pod.Spec.Volumes {
			switch {
			case volume.PersistentVolumeClaim != nil:
				add(s.claims.get(store.Key(pod.Namespace, volume.PersistentVolumeClaim.ClaimName)))
			case volume.CSI != nil:
				p.needed[volume.CSI.Driver] = fmt.Sprintf("Pod %q: spec.volumes[%d].csi.driver", store.Key(pod.Namespace, pod.Name), i)
			}
		}
	}
}

// write stores the plan in one transaction.
func (h *Host) write(p plan) error {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	return h.store.Update(func(tx *store.Tx) error {
		for _, given := range p.plain {
			if err := writePlain(tx, given, now); err != nil {
				return err
			}
		}
		kind, _ := store.KindOf("persistentvolumeclaims")
		for _, pvc := range p.claims {
			pvc.ManagedFields = ownedOf(kind, pvc)
			if err := tx.Claims().Put(claimKey(pvc), pvc); err != nil {
				return err
			}
		}
		return nil
	})
}

// writePlain stores an object as it is given, whatever is there: a run takes
// what it is told, once.
func writePlain(tx *store.Tx, given manifest.Object, now metav1.Time) error {
	table := tx.Objects(given.Kind)
	stored, err := table.Get(given.Key)
	switch {
	case err != nil:
		return err
	case stored == nil:
		initialise(given.Kind, given.Object, now)
	default:
		keepStatus(given.Object, stored)
		given.SetManagedFields(ownedOf(given.Kind, given.Object))
	}
	return table.Put(given.Key, given.Object)
}

// forgetUnmade removes given claims that nothing was made of, after a failure:
// the next try may give them otherwise.
func (h *Host) forgetUnmade(p plan) error {
	return h.store.Update(func(tx *store.Tx) error {
		for _, pvc := range p.claims {
			stored, err := tx.Claims().Get(claimKey(pvc))
			if err != nil {
				return err
			}
			record, err := tx.Provisionings().Get(string(pvc.UID))
			if err != nil {
				return err
			}
			if stored == nil || stored.Spec.VolumeName != "" || record != nil {
				continue
			}
			if err := tx.Claims().Delete(claimKey(pvc)); err != nil {
				return err
			}
		}
		return nil
	})
}
