package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
)

// runTimeout bounds how long a run waits for volumes whose outcome is unknown, as the
// kubelet does for a pod's volumes.
const runTimeout = 2*time.Minute + 3*time.Second

// forRun is the state of api.ApplyOptions.Run.
type forRun struct {
	node string
	// registered returns nil if a driver is registered.
	registered func(driver string) error
	// given are the claims in the files: a fault of one is reported once.
	given map[string]bool
	// claims are the keys of the claims that are given or used.
	claims []string
	// made are the claims that this apply created.
	made []string
}

// isHeld reports whether an object is a pod that the caller runs itself.
func (a *applier) isHeld(given manifest.Object) bool { return a.run != nil && given.Kind.Kind == "Pod" }

// isRegistered returns nil if a driver is registered, and otherwise an error that
// lists the drivers that are.
func (h *Host) isRegistered(driver string) error {
	if _, err := h.plugins.Driver(driver); err != nil {
		return fmt.Errorf("%w: %s", err, h.registered())
	}
	return nil
}

// registered lists the drivers, and says how to get more.
func (h *Host) registered() string {
	names := h.plugins.Names()
	for i, name := range names {
		if _, builtin := h.serving[name]; builtin {
			names[i] += " (built in)"
		}
	}
	list := strings.Join(names, ", ")
	if list == "" {
		list = "none"
	}
	return fmt.Sprintf("drivers here: %s; another one registers with a socket in %s", list, h.paths.Registry())
}

// checkDrivers refuses an object whose driver is not registered.
func (a *applier) checkDrivers(object store.Object) error {
	var problems []error
	check := func(name, what string) {
		if err := a.run.registered(name); err != nil {
			problems = append(problems, refuse(api.ErrInvalid, fmt.Errorf("%s: %w", what, err)))
		}
	}
	switch object := object.(type) {
	case *corev1.PersistentVolumeClaim:
		a.run.given[claimKey(object)] = true
		a.checkDriverOf(object, check)
	case *corev1.Pod:
		for i, volume := range object.Spec.Volumes {
			switch {
			case volume.PersistentVolumeClaim != nil:
				if key := store.Key(object.Namespace, volume.PersistentVolumeClaim.ClaimName); !a.run.given[key] {
					a.checkDriverOf(a.state.claims.get(key), check)
				}
			case volume.CSI != nil:
				check(volume.CSI.Driver, fmt.Sprintf("%s: spec.volumes[%d].csi.driver", describePod(object), i))
			}
		}
	}
	return errors.Join(problems...)
}

func (a *applier) checkDriverOf(pvc *corev1.PersistentVolumeClaim, check func(name, what string)) {
	if pvc == nil {
		return // another check refuses it
	}
	if volume := a.state.volumes.get(pvc.Spec.VolumeName); volume != nil && volume.Spec.CSI != nil {
		check(volume.Spec.CSI.Driver, claim.Describe(pvc))
	} else if class := a.state.classOf(pvc); class != nil {
		check(class.Provisioner, fmt.Sprintf("StorageClass %q: provisioner", class.Name))
	}
}

// selectNode selects this node for the given and used claims, so that claims with
// WaitForFirstConsumer get their volumes now, and notes them for awaitClaims.
func (a *applier) selectNode(changes []change) error {
	for _, c := range changes {
		switch object := c.Object.Object.(type) {
		case *corev1.PersistentVolumeClaim:
			a.run.claims = append(a.run.claims, c.Key)
			if c.action == api.Created {
				a.run.made = append(a.run.made, c.Key)
			}
		case *corev1.Pod:
			a.run.claims = append(a.run.claims, volumes.ClaimsOf(object)...)
		}
	}
	slices.Sort(a.run.claims)
	a.run.claims = slices.Compact(a.run.claims)
	for _, key := range a.run.claims {
		pvc, err := a.tx.Claims().Get(key)
		if err != nil {
			return err
		}
		if pvc == nil || pvc.Spec.VolumeName != "" || pvc.Annotations[volumes.SelectedNodeAnnotation] != "" {
			continue
		}
		if class := a.state.classOf(pvc); class == nil || class.VolumeBindingMode == nil ||
			*class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
			continue
		}
		if pvc.Annotations == nil {
			pvc.Annotations = map[string]string{}
		}
		pvc.Annotations[volumes.SelectedNodeAnnotation] = a.run.node
		if err := a.tx.Claims().Put(key, pvc); err != nil {
			return err
		}
	}
	return nil
}

// awaitClaims returns when the claims of a run have their volumes, of the size
// that they ask for.
func (h *Host) awaitClaims(ctx context.Context, a *applier) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	queues := h.set.Group(claimKind().Resource)
	for _, key := range a.run.claims {
		for _, queue := range queues {
			queue.Add(key) // this apply may have removed the cause of an earlier failure
		}
	}
	waiting := a.run.claims
	var failed []error
	err := h.set.Await(ctx, func() bool {
		waiting = slices.DeleteFunc(waiting, func(key string) bool {
			busy := slices.ContainsFunc(queues, func(q *reconcile.Queue) bool { return q.Busy(key) })
			ready, err := h.hasVolume(key, !busy)
			if err == nil && !ready && !busy {
				err = h.volumes.ClaimFailure(key)
			}
			if err != nil {
				failed = append(failed, err)
			}
			return ready || err != nil
		})
		return len(waiting) == 0
	})
	if err != nil {
		for _, key := range waiting {
			failed = append(failed, fmt.Errorf("claim %s has no volume: %s: %w", key, h.whyNot(claimKind(), key), err))
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return errors.Join(append(failed, h.forgetUnmade(a.run.made))...)
}

// hasVolume reports whether a claim has a volume of the size that it asks for. If
// the claim is up to date, the error also says that it cannot grow.
func (h *Host) hasVolume(key string, upToDate bool) (ready bool, err error) {
	err = h.store.View(func(tx *store.Tx) error {
		pvc, err := tx.Claims().Get(key)
		if err != nil {
			return err
		}
		if pvc == nil || pvc.DeletionTimestamp != nil {
			return fmt.Errorf("PersistentVolumeClaim %q was deleted", key)
		}
		volume, err := tx.Volumes().Get(pvc.Spec.VolumeName)
		if volume == nil || pvc.Status.Phase != corev1.ClaimBound {
			return err
		}
		desired, has := pvc.Spec.Resources.Requests[corev1.ResourceStorage], volume.Spec.Capacity[corev1.ResourceStorage]
		if ready = has.Cmp(desired) >= 0; !ready && upToDate {
			return growthFailure(pvc)
		}
		return nil
	})
	return ready, err
}

// growthFailure says that the driver rejected the size that a claim asks for.
func growthFailure(pvc *corev1.PersistentVolumeClaim) error {
	if pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != corev1.PersistentVolumeClaimControllerResizeInfeasible {
		return nil
	}
	text := "the driver rejects the size"
	if condition := claim.Condition(pvc, corev1.PersistentVolumeClaimControllerResizeError); condition != nil {
		text = condition.Message
	}
	return fmt.Errorf("claim %s: expand: %s", claimKey(pvc), text)
}

// forgetUnmade removes claims without a volume: the next run may define them
// differently.
func (h *Host) forgetUnmade(keys []string) error {
	return h.store.Update(func(tx *store.Tx) error {
		for _, key := range keys {
			pvc, err := tx.Claims().Get(key)
			if err != nil {
				return err
			}
			if pvc == nil || pvc.Spec.VolumeName != "" {
				continue
			}
			record, err := tx.Provisionings().Get(string(pvc.UID))
			if err != nil {
				return err
			}
			if record != nil {
				continue
			}
			if err := tx.Claims().Delete(key); err != nil {
				return err
			}
		}
		return nil
	})
}
