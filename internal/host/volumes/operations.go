package volumes

import (
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// Pending is an object that a controller has not brought to its desired state.
type Pending struct {
	Controller, Key string
	// Running: the controller is on it. Err is the error of its last call, if that failed.
	Running bool
	Err     error
	// Since is when it became due, the zero time if that is not known.
	Since time.Time
}

// Waiting calls report for each object that waits for a change by somebody else, which no
// queue has: a claim that the driver refuses, for example. report must not call the Manager.
func (m *Manager) Waiting(report func(Pending)) {
	m.reasons.each(func(name string, err error) {
		var wait *blocked
		if errors.As(err, &wait) && wait.normal {
			return // nothing has begun
		}
		controller, key, _ := strings.Cut(name, "/")
		report(Pending{Controller: controller, Key: key, Err: err})
	})
	m.polls.each(func(name string, known poll) {
		if known.upload != nil {
			report(Pending{Controller: contentResource, Key: name, Err: ErrWaiting, Since: known.upload.began})
		}
	})
}

// VolumeInfos returns the names of the volumes in use. Inline volumes have no claim.
func (m *Manager) VolumeInfos() (infos []metrics.VolumeInfo, err error) {
	err = m.view(func(tx *store.Tx) error {
		uses, err := tx.Uses().All()
		for _, use := range uses {
			info := metrics.VolumeInfo{Driver: use.Driver, ID: use.Handle}
			if !use.Inline {
				claimKey, err := claimOfVolume(tx, use.SpecName)
				if err != nil {
					return err
				}
				info.PersistentVolume = use.SpecName
				info.Namespace, info.Claim, _ = strings.Cut(claimKey, "/")
			}
			infos = append(infos, info)
		}
		return err
	})
	return infos, err
}

// Operations returns the operations for objects that are pending. An object that asks for
// nothing, such as a bound claim that is inspected after a change, has none.
func (m *Manager) Operations(pending []Pending) (operations []metrics.Operation, err error) {
	err = m.view(func(tx *store.Tx) error {
		for _, one := range pending {
			of, err := operationOf(tx, one)
			if err != nil {
				return err
			}
			if of.kind == "" {
				continue
			}
			operation := metrics.Operation{Kind: of.kind, Reason: reasonOf(one), Since: of.since, Driver: of.driver}
			if operation.Since.IsZero() {
				operation.Since = one.Since
			}
			if operation.Since.IsZero() {
				operation.Since = time.Now()
			}
			var answer *client.Error
			if errors.As(one.Err, &answer) && answer.Driver != "" {
				operation.Driver = answer.Driver
			}
			operations = append(operations, operation)
		}
		return nil
	})
	return operations, err
}

// reasonOf returns why an operation is unfinished.
func reasonOf(one Pending) string {
	var answer *client.Error
	switch {
	case errors.As(one.Err, &answer) && answer.Code != "":
		return answer.Code
	case errors.Is(one.Err, ErrWaiting):
		return metrics.ReasonWaiting
	case one.Err != nil:
		return metrics.ReasonOther
	case one.Running:
		return metrics.ReasonRunning
	}
	return metrics.ReasonWaiting
}

// operation is what an object asks for. Its kind is "" for one that asks for nothing.
type operation struct {
	kind, driver string
	since        time.Time // the zero time if the object does not show it
}

func operationOf(tx *store.Tx, one Pending) (operation, error) {
	switch one.Controller {
	case claimResource:
		return claimOperation(tx, one)
	case expansions:
		return boundOperation(tx, metrics.KindResize, one.Key)
	case modifications:
		return boundOperation(tx, metrics.KindModify, one.Key)
	case growths:
		return boundOperation(tx, metrics.KindResizeFilesystem, one.Key)
	case abandonedClaims:
		intent, err := tx.Provisionings().Get(one.Key)
		if err != nil || intent == nil {
			return operation{}, err
		}
		return operation{metrics.KindDelete, intent.Driver, intent.Started}, nil
	case volumeResource:
		return volumeOperation(tx, one)
	case snapshotResource, contentResource:
		return snapshotOperation(tx, one)
	case leftovers:
		driver, err := driverOfUse(tx, one.Key)
		return operation{kind: metrics.KindUnmount, driver: driver}, err
	case republications:
		return operation{kind: metrics.KindRepublish, driver: one.Key}, nil
	case podResource:
		return podOperation(tx, one.Key)
	}
	return operation{}, nil
}

func claimOperation(tx *store.Tx, one Pending) (operation, error) {
	pvc, err := tx.Claims().Get(one.Key)
	switch {
	case err != nil || pvc == nil:
		return operation{}, err
	case pvc.DeletionTimestamp != nil:
		driver, err := driverOfClaim(tx, pvc)
		return operation{metrics.KindDelete, driver, pvc.DeletionTimestamp.Time}, err
	case pvc.Status.Phase == corev1.ClaimBound && one.Err == nil:
		return operation{}, nil
	}
	driver, err := driverOfClaim(tx, pvc)
	return operation{metrics.KindProvision, driver, pvc.CreationTimestamp.Time}, err
}

// boundOperation is one for the volume of a claim.
func boundOperation(tx *store.Tx, kind, key string) (operation, error) {
	pvc, err := tx.Claims().Get(key)
	if err != nil || pvc == nil {
		return operation{}, err
	}
	driver, err := driverOfClaim(tx, pvc)
	return operation{kind: kind, driver: driver}, err
}

// driverOfClaim is the driver of a claim's volume, or of its class; "" if it has neither.
func driverOfClaim(tx *store.Tx, pvc *corev1.PersistentVolumeClaim) (string, error) {
	if pvc.Spec.VolumeName != "" {
		pv, err := tx.Volumes().Get(pvc.Spec.VolumeName)
		if err != nil || pv != nil && pv.Spec.CSI != nil {
			return driverOf(pv), err
		}
	}
	class, err := tx.Classes().Get(className(pvc))
	if err != nil || class == nil {
		return "", err
	}
	return class.Provisioner, nil
}

func driverOf(pv *corev1.PersistentVolume) string {
	if pv == nil || pv.Spec.CSI == nil {
		return ""
	}
	return pv.Spec.CSI.Driver
}

// volumeOperation is the deletion of a volume: its binding is the claim's.
func volumeOperation(tx *store.Tx, one Pending) (operation, error) {
	pv, err := tx.Volumes().Get(one.Key)
	if err != nil || pv == nil || pv.DeletionTimestamp == nil && pv.Status.Phase != corev1.VolumeReleased && one.Err == nil {
		return operation{}, err
	}
	of := operation{kind: metrics.KindDelete, driver: driverOf(pv)}
	if pv.DeletionTimestamp != nil {
		of.since = pv.DeletionTimestamp.Time
	}
	return of, nil
}

// snapshotOperation is the one of a content, or of a snapshot that has no content yet.
func snapshotOperation(tx *store.Tx, one Pending) (operation, error) {
	name := one.Key
	of := operation{kind: metrics.KindSnapshot}
	if one.Controller == snapshotResource {
		snapshot, err := tx.Snapshots().Get(one.Key)
		if err != nil || snapshot == nil {
			return operation{}, err
		}
		name, of.since = contentName(snapshot), snapshot.CreationTimestamp.Time
		if snapshot.DeletionTimestamp != nil {
			of.kind, of.since = metrics.KindDeleteSnapshot, snapshot.DeletionTimestamp.Time
		}
	}
	content, err := tx.SnapshotContents().Get(name)
	switch {
	case err != nil:
		return operation{}, err
	case one.Controller == snapshotResource && (content != nil || one.Err == nil):
		return operation{}, nil // the content's operation is the same one
	case content == nil:
		return of, nil
	}
	of.driver = content.Spec.Driver
	of.since = content.CreationTimestamp.Time
	if content.DeletionTimestamp != nil {
		of.kind, of.since = metrics.KindDeleteSnapshot, content.DeletionTimestamp.Time
	} else if content.Status != nil && ok(content.Status.ReadyToUse) && one.Err == nil {
		return operation{}, nil
	}
	return of, nil
}

// driverOfUse is the driver of a key of the controller of leftovers.
func driverOfUse(tx *store.Tx, key string) (string, error) {
	if name, ok := strings.CutPrefix(key, leftoverUse); ok {
		use, err := tx.Uses().Get(name)
		if err != nil || use == nil {
			return "", err
		}
		return use.Driver, nil
	}
	uid := types.UID(strings.TrimPrefix(key, leftoverPod))
	uses, err := tx.Uses().All()
	for _, use := range uses {
		for _, target := range use.Targets {
			if target.PodUID == uid {
				return use.Driver, err
			}
		}
	}
	return "", err
}

// podOperation is the start or the end of a pod that has volumes of a driver. Its driver is
// that of its first volume, if no answer of a driver names another one.
func podOperation(tx *store.Tx, key string) (operation, error) {
	pod, err := tx.Pods().Get(key)
	if err != nil || pod == nil {
		return operation{}, err
	}
	driver, err := driverOfPod(tx, pod)
	switch {
	case err != nil || driver == "":
		return operation{}, err
	case pod.DeletionTimestamp != nil:
		return operation{metrics.KindUnmount, driver, pod.DeletionTimestamp.Time}, nil
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		return operation{metrics.KindMount, driver, pod.CreationTimestamp.Time}, nil
	}
	return operation{}, nil
}

func driverOfPod(tx *store.Tx, pod *corev1.Pod) (string, error) {
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.CSI != nil:
			return volume.CSI.Driver, nil
		case volume.PersistentVolumeClaim != nil:
			pvc, err := tx.Claims().Get(store.Key(pod.Namespace, volume.PersistentVolumeClaim.ClaimName))
			if err != nil || pvc == nil {
				return "", err
			}
			return driverOfClaim(tx, pvc)
		}
	}
	return "", nil
}
