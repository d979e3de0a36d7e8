package volumes

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// misfit says why a PersistentVolume cannot be a claim's, "" if it can (the PV
// controller's checkVolumeSatisfyClaim, and for a volume that is searched for,
// its index). Whether it is free is another question.
func misfit(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) string {
	desired, has := pvc.Spec.Resources.Requests[corev1.ResourceStorage], pv.Spec.Capacity[corev1.ResourceStorage]
	switch {
	case pv.DeletionTimestamp != nil:
		return "it is being deleted"
	case has.Cmp(desired) < 0:
		return fmt.Sprintf("it has %s, less than the %s asked for", has.String(), desired.String())
	case pv.Spec.StorageClassName != className(pvc):
		return fmt.Sprintf("its storageClassName is %q, the claim's %q", pv.Spec.StorageClassName, className(pvc))
	case claim.IsBlock(pv.Spec.VolumeMode) != claim.IsBlock(pvc.Spec.VolumeMode):
		return "its volumeMode is another than the claim's"
	case volumeAttributesClass(pv) != attributesClass(pvc):
		return fmt.Sprintf("its volumeAttributesClassName is %q, the claim's %q", volumeAttributesClass(pv), attributesClass(pvc))
	}
	for _, mode := range pvc.Spec.AccessModes {
		if !slices.Contains(pv.Spec.AccessModes, mode) {
			return fmt.Sprintf("it does not offer access mode %s", mode)
		}
	}
	return ""
}

func className(pvc *corev1.PersistentVolumeClaim) string {
	if pvc.Spec.StorageClassName == nil {
		return ""
	}
	return *pvc.Spec.StorageClassName
}

func volumeAttributesClass(pv *corev1.PersistentVolume) string {
	if pv.Spec.VolumeAttributesClassName == nil {
		return ""
	}
	return *pv.Spec.VolumeAttributesClassName
}

// reservation is the relation of a PersistentVolume to a claim.
type reservation int

const (
	free     reservation = iota // it has no claim
	reserved                    // its claimRef names this claim
	another                     // its claimRef names another one
)

// reservationOf: a claimRef without a uid is for whatever claim has that name.
func reservationOf(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) reservation {
	reference := pv.Spec.ClaimRef
	switch {
	case reference == nil:
		return free
	case reference.Namespace == pvc.Namespace && reference.Name == pvc.Name && (reference.UID == "" || reference.UID == pvc.UID):
		return reserved
	}
	return another
}

// best picks the volume that a claim without volumeName gets: one that is
// reserved for it, else the smallest free one that fits. Of equal ones the
// first by name. delayed: only a reserved one, since the rest waits for a pod.
func best(pvc *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume, delayed bool, here map[string]string) (*corev1.PersistentVolume, error) {
	var selector labels.Selector
	if pvc.Spec.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(pvc.Spec.Selector); err != nil {
			return nil, fmt.Errorf("%s: spec.selector: %w", claim.Describe(pvc), err)
		}
	}
	var smallest *corev1.PersistentVolume
	for _, pv := range volumes {
		if misfit(pvc, pv) != "" {
			continue
		}
		switch reservationOf(pvc, pv) {
		case reserved:
			return pv, nil
		case another:
			continue
		}
		if delayed || selector != nil && !selector.Matches(labels.Set(pv.Labels)) || !reachable(pv, here) {
			continue
		}
		if size := sizeOf(pv); smallest == nil || size.Cmp(sizeOf(smallest)) < 0 {
			smallest = pv
		}
	}
	return smallest, nil
}

func sizeOf(pv *corev1.PersistentVolume) resource.Quantity {
	return pv.Spec.Capacity[corev1.ResourceStorage]
}

// reachable reports whether a machine with these topology segments may use a
// volume. Of keys that the machine knows nothing about, nothing is said.
func reachable(pv *corev1.PersistentVolume, here map[string]string) bool {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return true
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		if !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			value, known := here[r.Key]
			return known && r.Operator == corev1.NodeSelectorOpIn && !slices.Contains(r.Values, value)
		}) {
			return true
		}
	}
	return false
}

// join binds a claim and a volume to each other in one transaction, so that
// neither refers to the other alone.
func join(tx *store.Tx, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	pv.Spec.ClaimRef = &corev1.ObjectReference{
		Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID,
	}
	pv.Status.Phase, pv.Status.Reason, pv.Status.Message = corev1.VolumeBound, "", ""
	protect(pv, volumeFinalizers(pv.Spec.PersistentVolumeReclaimPolicy)...)
	pvc.Spec.VolumeName = pv.Name
	if pvc.Status.Phase != corev1.ClaimBound {
		pvc.Status.Phase = corev1.ClaimBound
		pvc.Status.AccessModes = pv.Spec.AccessModes
		if pvc.Status.Capacity == nil { // a claim that was lost knows it better
			pvc.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: sizeOf(pv)}
			if had, pending := unexpanded(pv); pending {
				pvc.Status.Capacity[corev1.ResourceStorage] = had
				pvc.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: sizeOf(pv)}
				claim.AwaitNode(pvc, time.Now())
			}
		}
		if name := volumeAttributesClass(pv); name != "" && pvc.Status.CurrentVolumeAttributesClassName == nil {
			pvc.Status.CurrentVolumeAttributesClassName = &name
		}
	}
	return errors.Join(tx.Volumes().Put(pv.Name, pv), tx.Claims().Put(store.Key(pvc.Namespace, pvc.Name), pvc))
}

// bind binds a claim to a volume that exists, if both still are what they were.
func (m *Manager) bind(pvc *corev1.PersistentVolumeClaim, name string) error {
	key := store.Key(pvc.Namespace, pvc.Name)
	if err := m.hit("bind/chosen"); err != nil {
		return err
	}
	err := m.update(func(tx *store.Tx) error {
		current, err := tx.Claims().Get(key)
		if err != nil {
			return err
		}
		pv, err := tx.Volumes().Get(name)
		switch {
		case err != nil:
			return err
		case current == nil || current.UID != pvc.UID || current.DeletionTimestamp != nil || current.Spec.VolumeName != "" && current.Spec.VolumeName != name:
			return fmt.Errorf("%s changed meanwhile", claim.Describe(pvc))
		case pv == nil || reservationOf(current, pv) == another || misfit(current, pv) != "" && current.Status.Phase == corev1.ClaimPending:
			return fmt.Errorf("PersistentVolume %q changed meanwhile", name)
		}
		return join(tx, current, pv)
	})
	if err != nil {
		return err
	}
	return m.hit("bind/recorded")
}

// search looks for a volume for a claim that names none. The free volumes of
// its class are few: those that were made for claims are never free.
func (m *Manager) search(pvc *corev1.PersistentVolumeClaim, delayed bool) (*corev1.PersistentVolume, error) {
	names, err := m.index.find(isFree(className(pvc)))
	if err != nil || len(names) == 0 {
		return nil, err
	}
	var volumes []*corev1.PersistentVolume
	here := map[string]string{}
	err = m.view(func(tx *store.Tx) error {
		for _, name := range names {
			pv, err := tx.Volumes().Get(name)
			if err != nil {
				return err
			}
			if pv != nil && pv.Spec.CSI != nil {
				volumes = append(volumes, pv)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, pv := range volumes {
		if driver, err := m.options.Drivers.Driver(pv.Spec.CSI.Driver); err == nil {
			for key, value := range driver.Node.Topology {
				here[key] = value
			}
		}
	}
	return best(pvc, volumes, delayed, here)
}
