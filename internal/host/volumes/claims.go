package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Reasons of events, as the PV controller and external-provisioner have them.
const (
	reasonProvisioning   = "Provisioning"
	reasonProvisioned    = "ProvisioningSucceeded"
	reasonFailed         = "ProvisioningFailed"
	reasonCleanupFailed  = "ProvisioningCleanupFailed"
	reasonExternal       = "ExternalProvisioning"
	reasonFirstConsumer  = "WaitForFirstConsumer"
	reasonFailedBinding  = "FailedBinding"
	reasonVolumeMismatch = "VolumeMismatch"
	reasonClaimLost      = "ClaimLost"
	reasonClaimMisbound  = "ClaimMisbound"
	reasonDeletePending  = "DeletePending"
)

// slowRetry is the time until a request that the driver rejects is repeated
// (external-provisioner's slow set).
const slowRetry = 5 * time.Minute

// noProvisioner is the provisioner of classes without dynamic provisioning.
const noProvisioner = "kubernetes.io/no-provisioner"

// defaultClassAnnotation, "true", makes a StorageClass the default of claims that name
// none.
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

// SelectedNodeAnnotation on a claim names the node of its volume, as a cluster's
// scheduler sets it. Such a claim does not wait for a pod.
const SelectedNodeAnnotation = "volume.kubernetes.io/selected-node"

// syncClaim brings one claim closer to its desired state: its deletion, its binding, or
// the creation of its volume.
func (m *Manager) syncClaim(ctx context.Context, key string) (time.Duration, error) {
	pvc, err := m.claimOf(key)
	if err != nil || pvc == nil {
		return 0, err
	}
	if pvc.DeletionTimestamp == nil {
		if gone, err := m.deleteWithPod(pvc); gone || err != nil {
			return 0, err // this change requeues the claim
		}
	}
	switch {
	case pvc.DeletionTimestamp != nil:
		err = m.endClaim(ctx, pvc)
	case pvc.Status.Phase == corev1.ClaimBound || pvc.Status.Phase == corev1.ClaimLost:
		return 0, m.syncBound(pvc)
	default:
		for _, class := range classesOf(pvc) {
			m.waits.add(dependency(claimResource, key), class)
		}
		err = m.bindOrProvision(ctx, pvc)
	}
	err = m.explain(claimResource, claimAbout(pvc), reasonFailed, err)
	return pace(err, pvc)
}

// classesOf returns the classes from which the request for a claim's volume is made.
func classesOf(pvc *corev1.PersistentVolumeClaim) []string {
	classes := dependencies(dependency("storageclasses", className(pvc)))
	if name := attributesClass(pvc); name != "" {
		classes = append(classes, dependency("volumeattributesclasses", name))
	}
	return classes
}

// pace slows the repetition of a request that the driver rejects, unless its classes
// change.
func pace(err error, pvc *corev1.PersistentVolumeClaim) (time.Duration, error) {
	if isRejected(err) {
		return slowRetry, &blocked{error: err, on: classesOf(pvc)}
	}
	return 0, err
}

// isRejected reports whether the driver called a request wrong.
func isRejected(err error) bool { return errors.As(err, new(*rejectedError)) }

// bindOrProvision finds or creates the volume of a claim that has none.
func (m *Manager) bindOrProvision(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	intent, err := m.intentOf(pvc.UID)
	if err != nil {
		return err
	}
	if intent != nil { // the driver may be creating the volume, even if the claim has changed
		return m.createVolume(ctx, intent, pvc, false)
	}
	if pvc.Spec.VolumeName != "" { // the class does not matter then
		return m.bindNamed(pvc)
	}
	if pvc.Spec.StorageClassName == nil {
		if filled, err := m.fillClass(pvc); filled || err != nil {
			return err
		}
	}
	class, err := m.classOf(className(pvc))
	if err != nil {
		return err
	}
	delayed, err := m.delayed(pvc, class)
	if err != nil {
		return err
	}
	found, err := m.search(pvc, delayed)
	if err != nil {
		return err
	}
	if found != nil {
		return m.bind(pvc, found.Name)
	}
	if err := awaitVolume(pvc, class, delayed); err != nil {
		return err
	}
	return m.provision(ctx, pvc, class)
}

// awaitVolume returns the wait of a claim that no existing volume fits, nil if a volume
// may be created for it.
func awaitVolume(pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, delayed bool) error {
	on := dependencies(isFree(className(pvc)))
	switch {
	case delayed:
		return &blocked{
			error: errors.New("waiting for first consumer to be created before binding"),
			on:    append(on, dependency("storageclasses", class.Name)), reason: reasonFirstConsumer, normal: true,
		}
	case className(pvc) == "":
		if pvc.Spec.StorageClassName == nil {
			on = append(on, dependency("storageclasses", "*"))
		}
		return &blocked{
			error: errors.New("no persistent volumes available for this claim and no storage class is set"),
			on:    on, reason: reasonFailedBinding, normal: true,
		}
	case class == nil:
		return waitFor(append(on, dependency("storageclasses", className(pvc))), "",
			"storageclass.storage.k8s.io %q not found", className(pvc))
	case class.Provisioner == noProvisioner:
		return &blocked{
			error: fmt.Errorf("no persistent volumes available for this claim, and StorageClass %q makes none",
				class.Name),
			on: on, reason: reasonFailedBinding, normal: true,
		}
	}
	return nil
}

// bindNamed binds a claim that names its volume.
func (m *Manager) bindNamed(pvc *corev1.PersistentVolumeClaim) error {
	name := pvc.Spec.VolumeName
	on := dependencies(dependency(volumeResource, name))
	pv, err := m.volumeOf(name)
	switch {
	case err != nil:
		return err
	case pv == nil:
		return waitFor(on, reasonFailedBinding, "spec.volumeName: PersistentVolume %q does not exist", name)
	case pv.Spec.CSI == nil:
		return waitFor(on, reasonFailedBinding, "spec.volumeName: PersistentVolume %q is not a volume of a CSI driver", name)
	case reservationOf(pvc, pv) == another:
		return waitFor(on, reasonFailedBinding, "volume %q already bound to a different claim.", name)
	}
	if problem := misfit(pvc, pv); problem != "" {
		return waitFor(on, reasonVolumeMismatch, "Cannot bind to requested volume %q: %s", name, problem)
	}
	return m.bind(pvc, name)
}

// fillClass sets the class of a claim without one to the default class, even if that
// is created later (KEP 3333). Of several default classes, it takes the newest that a
// user made so.
func (m *Manager) fillClass(pvc *corev1.PersistentVolumeClaim) (bool, error) {
	var newest *storagev1.StorageClass
	err := m.view(func(tx *store.Tx) error {
		classes, err := tx.Classes().All()
		defaults := slices.DeleteFunc(classes, func(class *storagev1.StorageClass) bool {
			return class.Annotations[defaultClassAnnotation] != "true"
		})
		for _, class := range claim.PreferGiven(defaults) {
			if newest == nil || newest.CreationTimestamp.Before(&class.CreationTimestamp) {
				newest = class
			}
		}
		return err
	})
	if err != nil || newest == nil {
		return false, err
	}
	return true, m.editClaim(pvc, func(current *corev1.PersistentVolumeClaim) {
		if current.Spec.StorageClassName == nil {
			current.Spec.StorageClassName = &newest.Name
		}
	})
}

// delayed reports whether a claim waits for a pod that uses it.
func (m *Manager) delayed(pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (bool, error) {
	if class == nil || class.VolumeBindingMode == nil ||
		*class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		return false, nil
	}
	if pvc.Annotations[SelectedNodeAnnotation] != "" { // a host has one node
		return false, nil
	}
	pods, err := m.usersOf(pvc, consumes(store.Key(pvc.Namespace, pvc.Name)))
	return len(pods) == 0, err
}

// search finds an existing volume for a claim that names none. The free volumes of a
// class are few: those that were created for claims are never free.
func (m *Manager) search(pvc *corev1.PersistentVolumeClaim, delayed bool) (*corev1.PersistentVolume, error) {
	names, err := m.index.find(isFree(className(pvc)))
	if err != nil || len(names) == 0 {
		return nil, err
	}
	var volumes []*corev1.PersistentVolume
	segments := map[string]string{}
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
				segments[key] = value
			}
		}
	}
	return best(pvc, volumes, delayed, segments)
}

// best picks the volume that a claim without volumeName gets: one that is
// reserved for it, else the smallest free one that fits. Of equal ones the
// first by name. With delayed, it picks only a reserved one, since the claim waits for a
// pod.
func best(
	pvc *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume, delayed bool, segments map[string]string,
) (*corev1.PersistentVolume, error) {
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
		if delayed || selector != nil && !selector.Matches(labels.Set(pv.Labels)) || !reachable(pv, segments) {
			continue
		}
		if size := sizeOf(pv); smallest == nil || size.Cmp(sizeOf(smallest)) < 0 {
			smallest = pv
		}
	}
	return smallest, nil
}

// misfit returns why a PersistentVolume does not fit a claim, "" if it fits (the PV
// controller's checkVolumeSatisfyClaim, and its index). It does not check whether the
// volume is free.
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
		return fmt.Sprintf("its volumeAttributesClassName is %q, the claim's %q",
			volumeAttributesClass(pv), attributesClass(pvc))
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

func attributesClass(pvc *corev1.PersistentVolumeClaim) string {
	if pvc.Spec.VolumeAttributesClassName == nil {
		return ""
	}
	return *pvc.Spec.VolumeAttributesClassName
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

// reservationOf compares names and UIDs. A claimRef without a UID reserves the volume
// for any claim of that name.
func reservationOf(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) reservation {
	reference := pv.Spec.ClaimRef
	switch {
	case reference == nil:
		return free
	case reference.Namespace != pvc.Namespace || reference.Name != pvc.Name,
		reference.UID != "" && reference.UID != pvc.UID:
		return another
	}
	return reserved
}

// reachable reports whether a machine with these topology segments may use a volume. A
// key that the machine lacks excludes nothing.
func reachable(pv *corev1.PersistentVolume, segments map[string]string) bool {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return true
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		if !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			value, known := segments[r.Key]
			return known && r.Operator == corev1.NodeSelectorOpIn && !slices.Contains(r.Values, value)
		}) {
			return true
		}
	}
	return false
}

func sizeOf(pv *corev1.PersistentVolume) resource.Quantity {
	return pv.Spec.Capacity[corev1.ResourceStorage]
}

// bind binds a claim to an existing volume, unless one of them has changed.
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
		case current == nil || current.UID != pvc.UID || current.DeletionTimestamp != nil,
			current.Spec.VolumeName != "" && current.Spec.VolumeName != name:
			return fmt.Errorf("%s changed meanwhile", claim.Describe(pvc))
		case pv == nil || reservationOf(current, pv) == another,
			misfit(current, pv) != "" && current.Status.Phase == corev1.ClaimPending:
			return fmt.Errorf("PersistentVolume %q changed meanwhile", name)
		}
		return join(tx, current, pv)
	})
	if err != nil {
		return err
	}
	return m.hit("bind/recorded")
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
		if pvc.Status.Capacity == nil { // a claim that was lost has the right one
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

// syncBound corrects a binding that the claim or the volume has lost.
func (m *Manager) syncBound(pvc *corev1.PersistentVolumeClaim) error {
	pv, err := m.volumeOf(pvc.Spec.VolumeName)
	switch {
	case err != nil:
		return err
	case pv == nil:
		return m.lose(pvc, reasonClaimLost, "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID == "" && reservationOf(pvc, pv) == reserved:
		return m.bind(pvc, pv.Name) // the volume came back
	case pv.Spec.ClaimRef.UID != pvc.UID:
		return m.lose(pvc, reasonClaimMisbound, "Two claims are bound to the same volume, this one is bound incorrectly")
	case pvc.Status.Phase == corev1.ClaimLost || pv.Status.Phase != corev1.VolumeBound:
		return m.bind(pvc, pv.Name)
	}
	return nil
}

// lose marks a claim whose volume does not exist. The claim waits for its return.
func (m *Manager) lose(pvc *corev1.PersistentVolumeClaim, reason, message string) error {
	if pvc.Status.Phase != corev1.ClaimLost {
		m.recordEvent(claimAbout(pvc), true, reason, message)
		if err := m.editClaim(pvc, func(current *corev1.PersistentVolumeClaim) {
			current.Status.Phase = corev1.ClaimLost
		}); err != nil {
			return err
		}
	}
	return waitFor(dependencies(dependency(volumeResource, pvc.Spec.VolumeName)), reason, "%s", message)
}

// describeClaim names a claim by its key.
func describeClaim(key string) string { return fmt.Sprintf("PersistentVolumeClaim %q", key) }
