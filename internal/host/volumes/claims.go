package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/plugins"
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

// slowRetry is when a claim is tried again whose request the driver called
// wrong (external-provisioner's slow set).
const slowRetry = 5 * time.Minute

// noProvisioner is the provisioner of classes without dynamic provisioning.
const noProvisioner = "kubernetes.io/no-provisioner"

// defaultClassAnnotation, "true" on a StorageClass, makes it the one of claims
// that name none.
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

// SelectedNodeAnnotation on a claim names the node that its volume is for, as a
// cluster's scheduler sets it: the claim waits for no pod.
const SelectedNodeAnnotation = "volume.kubernetes.io/selected-node"

// syncClaim brings one claim a step on.
func (m *Manager) syncClaim(ctx context.Context, key string) (time.Duration, error) {
	pvc, err := m.claimOf(key)
	if err != nil || pvc == nil {
		return 0, err
	}
	if pvc.DeletionTimestamp == nil {
		if gone, err := m.collect(pvc); gone || err != nil {
			return 0, err // its own change brings it here again
		}
	}
	switch {
	case pvc.DeletionTimestamp != nil:
		return 0, m.explain(claimResource, claimAbout(pvc), reasonFailed, m.endClaim(ctx, pvc))
	case pvc.Status.Phase == corev1.ClaimBound || pvc.Status.Phase == corev1.ClaimLost:
		return 0, m.syncBound(pvc)
	}
	classes := classesOf(pvc)
	for _, class := range classes {
		m.waits.add(dependency(claimResource, key), class)
	}
	err = m.explain(claimResource, claimAbout(pvc), reasonFailed, m.seekVolume(ctx, pvc))
	return pace(err, classes)
}

// classesOf returns what a request for a claim's volume is made of besides the claim.
func classesOf(pvc *corev1.PersistentVolumeClaim) []string {
	classes := dependencies(dependency("storageclasses", className(pvc)))
	if name := attributesClass(pvc); name != "" {
		classes = append(classes, dependency("volumeattributesclasses", name))
	}
	return classes
}

// pace slows the repetition of a request that the driver rejects, unless its classes
// change.
func pace(err error, classes []string) (time.Duration, error) {
	if isRejected(err) {
		return slowRetry, &blocked{error: err, on: classes}
	}
	return 0, err
}

// isRejected reports whether the driver called a request wrong.
func isRejected(err error) bool { return errors.As(err, new(*rejectedError)) }

func (m *Manager) claimOf(key string) (pvc *corev1.PersistentVolumeClaim, err error) {
	err = m.view(func(tx *store.Tx) error {
		pvc, err = tx.Claims().Get(key)
		return err
	})
	return pvc, err
}

// seekVolume finds or makes the volume of a claim that has none.
func (m *Manager) seekVolume(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	record, err := m.provisioning(pvc.UID)
	if err != nil {
		return err
	}
	if record != nil { // whatever else is true by now, the driver may be at it
		return m.provision(ctx, pvc)
	}
	if pvc.Spec.VolumeName != "" { // whatever class the volume has
		return m.bindNamed(pvc)
	}
	if pvc.Spec.StorageClassName == nil {
		if filled, err := m.fillClass(pvc); filled || err != nil {
			return err
		}
	}
	class, err := m.class(className(pvc))
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
	return m.makeVolume(ctx, pvc, class, delayed)
}

// makeVolume makes a volume for a claim that none fits that exists, when it is
// time for that.
func (m *Manager) makeVolume(ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, delayed bool) error {
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
			error: fmt.Errorf("no persistent volumes available for this claim, and StorageClass %q makes none", class.Name),
			on:    on, reason: reasonFailedBinding, normal: true,
		}
	}
	err := m.provision(ctx, pvc)
	if errors.Is(err, plugins.ErrNotRegistered) {
		m.once(claimResource, claimAbout(pvc), false, reasonExternal, fmt.Sprintf(
			"Waiting for a volume to be created either by the external provisioner '%s' or manually by the system administrator. "+
				"If volume creation is delayed, please verify that the provisioner is running and correctly registered.", class.Provisioner))
	}
	return err
}

// delayed reports whether a claim waits for a pod that uses it.
func (m *Manager) delayed(pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (bool, error) {
	if class == nil || class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		return false, nil
	}
	if pvc.Annotations[SelectedNodeAnnotation] != "" { // a host has one node
		return false, nil
	}
	pods, err := m.usersOf(pvc, consumes(store.Key(pvc.Namespace, pvc.Name)))
	return len(pods) == 0, err
}

// fillClass sets the default class of a claim that names none, also when that
// comes later. Of several, the newest (KEP 3333).
func (m *Manager) fillClass(pvc *corev1.PersistentVolumeClaim) (bool, error) {
	var newest *storagev1.StorageClass
	err := m.view(func(tx *store.Tx) error {
		classes, err := tx.Classes().All()
		for _, class := range classes {
			if class.Annotations[defaultClassAnnotation] == "true" && (newest == nil || newest.CreationTimestamp.Before(&class.CreationTimestamp)) {
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

// bindNamed binds a claim that names its volume.
func (m *Manager) bindNamed(pvc *corev1.PersistentVolumeClaim) error {
	name := pvc.Spec.VolumeName
	on := dependencies(dependency(volumeResource, name))
	pv, err := m.volume(name)
	switch {
	case err != nil:
		return err
	case pv == nil:
		return waitFor(on, reasonFailedBinding, "spec.volumeName: there is no PersistentVolume %q", name)
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

// syncBound corrects a binding that the claim or the volume has lost.
func (m *Manager) syncBound(pvc *corev1.PersistentVolumeClaim) error {
	pv, err := m.volume(pvc.Spec.VolumeName)
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

// lose marks a claim whose volume is gone. What is waited for is that it returns.
func (m *Manager) lose(pvc *corev1.PersistentVolumeClaim, reason, message string) error {
	if pvc.Status.Phase != corev1.ClaimLost {
		m.recordEvent(claimAbout(pvc), true, reason, message)
		if err := m.editClaim(pvc, func(current *corev1.PersistentVolumeClaim) { current.Status.Phase = corev1.ClaimLost }); err != nil {
			return err
		}
	}
	return waitFor(dependencies(dependency(volumeResource, pvc.Spec.VolumeName)), reason, "%s", message)
}

// collect begins the end of a generic ephemeral claim whose pod is gone: what
// garbage collection does on a cluster.
func (m *Manager) collect(pvc *corev1.PersistentVolumeClaim) (gone bool, err error) {
	owner := metav1.GetControllerOf(pvc)
	if owner == nil || owner.Kind != "Pod" {
		return false, nil
	}
	err = m.view(func(tx *store.Tx) error {
		pod, err := tx.Pods().Get(store.Key(pvc.Namespace, owner.Name))
		gone = err == nil && (pod == nil || pod.UID != owner.UID)
		return err
	})
	if err != nil || !gone {
		return false, err
	}
	return true, m.editClaim(pvc, func(current *corev1.PersistentVolumeClaim) {
		if current.DeletionTimestamp == nil {
			now := metav1.Now()
			current.DeletionTimestamp = &now
		}
	})
}

// describeClaim names a claim by its key.
func describeClaim(key string) string { return fmt.Sprintf("PersistentVolumeClaim %q", key) }
