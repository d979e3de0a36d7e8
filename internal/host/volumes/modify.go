package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// StepModify gives a volume other attributes.
const StepModify Step = "modify"

// Reasons of events, as external-resizer has them.
const (
	reasonModify           = "VolumeModify"
	reasonModifyFailed     = "VolumeModifyFailed"
	reasonModifySuccessful = "VolumeModifySuccessful"
	reasonModifyCanceled   = "VolumeModifyCanceled"
)

// modify gives a claim's volume the attributes that are wanted (KEP 3751).
func (m *Manager) modify(ctx context.Context, found bound) (time.Duration, error) {
	known, view := m.tries.get(string(found.claim.UID)), claim.ModifyOf(found.claim)
	rest := known.modify.rest(view.Wanted)
	view.Settled, view.Slow = known.modifySettled, rest > 0
	var err error
	switch view.Step() {
	case claim.ModifyWait:
		return rest, nil
	case claim.ModifyCancel:
		m.tell(claimAbout(found.claim), false, reasonModifyCanceled, "the claim names no VolumeAttributesClass any more; the volume stays as it is")
		return 0, m.editClaim(found.claim, claim.CancelModify)
	case claim.ModifyContinue:
		err = m.applyClass(ctx, found, view.Target, false)
	case claim.ModifyStart:
		err = m.applyClass(ctx, found, view.Wanted, true)
	}
	if err != nil && claim.Classify(claim.CallModify, err) == claim.OutcomeInfeasible {
		m.tell(claimAbout(found.claim), true, reasonModifyFailed, err.Error())
		m.tries.set(string(found.claim.UID), tries{
			resizeFailed: known.resizeFailed, resize: known.resize,
			modifySettled: true, modify: slow{view.Wanted, time.Now().Add(infeasiblePause)},
		})
		return infeasiblePause, nil
	}
	return 0, m.explain(claimResource, claimAbout(found.claim), reasonModifyFailed, err)
}

// applyClass takes a claim's volume to a class. start is false when an attempt
// that may still be running is gone on with.
func (m *Manager) applyClass(ctx context.Context, found bound, name string, start bool) error {
	class, err := m.attributesClass(name)
	if err != nil {
		return err
	}
	if class == nil {
		if start {
			err = m.editClaim(found.claim, claim.PendModify)
		}
		return errors.Join(err, waitFor(dependencies(dependency("volumeattributesclasses", name)), "", "VolumeAttributesClass %q does not exist", name))
	}
	if class.DriverName != found.volume.Spec.CSI.Driver {
		return m.refuseForeign(found, class)
	}
	driver, err := m.modifier(ctx, found.volume.Spec.CSI.Driver)
	if err != nil {
		return err
	}
	secrets, err := m.secret(claim.ModifySecret(found.volume), "ControllerModifyVolume")
	if err != nil {
		return fmt.Errorf("PersistentVolume %s: %w", found.volume.Name, err)
	}
	extra, err := m.extraMetadata(driver.Name)
	if err != nil {
		return err
	}
	request := &csi.ControllerModifyVolumeRequest{
		VolumeId: found.volume.Spec.CSI.VolumeHandle, Secrets: secrets,
		MutableParameters: claim.MutableParameters(class.Parameters, found.claim, found.volume.Name, extra),
	}
	of := claimMatter(found.claim, driver.Name, request.GetVolumeId())
	return m.stepOf(ctx, of, StepModify, m.onward(claim.CallModify), func(ctx context.Context) (string, error) {
		return name, m.modifyOnce(ctx, driver, found, name, request)
	})
}

func (m *Manager) modifier(ctx context.Context, name string) (*plugins.Driver, error) {
	driver, err := m.options.Drivers.Driver(name)
	if err != nil {
		return nil, err
	}
	can, err := driver.Client.ControllerCapabilities(ctx)
	if err == nil && !can.Modify {
		// A failure, since those are tried again when another driver comes.
		err = fmt.Errorf("driver %s cannot modify volumes: its controller has no MODIFY_VOLUME", name)
	}
	return driver, err
}

// modifyOnce is one attempt: the intent, the call, the outcome.
func (m *Manager) modifyOnce(ctx context.Context, driver *plugins.Driver, found bound, class string, request *csi.ControllerModifyVolumeRequest) error {
	if err := m.writeClaim(found.claim, func(pvc *corev1.PersistentVolumeClaim) { claim.BeginModify(pvc, class, time.Now()) }); err != nil {
		return err
	}
	if err := m.hit("modify/intent"); err != nil {
		return err
	}
	m.tell(claimAbout(found.claim), false, reasonModify, fmt.Sprintf("modifying volume %s to VolumeAttributesClass %q", request.GetVolumeId(), class))
	if err := driver.Client.ControllerModifyVolume(ctx, request); err != nil {
		return errors.Join(err, m.modifyRefused(found, err))
	}
	if err := m.hit("modify/called"); err != nil {
		return err
	}
	return m.modified(found, class)
}

func (m *Manager) modifyRefused(found bound, failure error) error {
	outcome, uid := claim.Classify(claim.CallModify, failure), string(found.claim.UID)
	known := m.tries.get(uid)
	known.modifySettled = outcome != claim.OutcomeUncertain
	m.tries.set(uid, known)
	code := codeOf(failure)
	if code == "" {
		code = "Unknown"
	}
	return m.writeClaim(found.claim, func(pvc *corev1.PersistentVolumeClaim) {
		claim.FailModify(pvc, outcome, code, shorten(failure.Error()), time.Now())
	})
}

// refuseForeign does not ask this driver for what another driver's class says.
func (m *Manager) refuseForeign(found bound, class *storagev1.VolumeAttributesClass) error {
	text := fmt.Sprintf("VolumeAttributesClass %q is for driver %s, and the volume is of driver %s; choose a class of this driver",
		class.Name, class.DriverName, found.volume.Spec.CSI.Driver)
	err := m.editClaim(found.claim, func(pvc *corev1.PersistentVolumeClaim) {
		claim.BeginModify(pvc, class.Name, time.Now())
		claim.FailModify(pvc, claim.OutcomeInfeasible, "InvalidArgument", text, time.Now())
	})
	return errors.Join(err, waitFor(dependencies(dependency("volumeattributesclasses", class.Name)), "", "%s", text))
}

// modified writes success, to volume and claim at once.
func (m *Manager) modified(found bound, class string) error {
	key := store.Key(found.claim.Namespace, found.claim.Name)
	err := m.update(func(tx *store.Tx) error {
		pvc, err := tx.Claims().Get(key)
		if err != nil || pvc == nil || pvc.UID != found.claim.UID {
			return err
		}
		volume, err := tx.Volumes().Get(found.volume.Name)
		if err != nil || volume == nil {
			return err
		}
		volume.Spec.VolumeAttributesClassName = &class
		claim.FinishModify(pvc, class)
		return errors.Join(tx.Claims().Put(key, pvc), tx.Volumes().Put(volume.Name, volume))
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	m.tries.drop(string(found.claim.UID))
	m.tell(claimAbout(found.claim), false, reasonModifySuccessful, fmt.Sprintf("the volume has VolumeAttributesClass %q", class))
	return nil
}
