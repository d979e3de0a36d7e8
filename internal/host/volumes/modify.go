package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	parameters, err := begunParameters(found.claim, start)
	switch {
	case err != nil:
		return err
	case parameters != nil: // whatever became of the class
	case class == nil:
		if start {
			err = m.editClaim(found.claim, claim.PendModify)
		}
		return errors.Join(err, waitFor(dependencies(dependency("volumeattributesclasses", name)), "", "VolumeAttributesClass %q does not exist", name))
	case class.DriverName != found.volume.Spec.CSI.Driver:
		return m.refuseForeign(found, class)
	}
	wanted, err := m.wantedParameters(found, class)
	if err != nil {
		return err
	}
	if parameters == nil {
		parameters = wanted
	}
	driver, request, err := m.modifyRequest(ctx, found.volume, parameters)
	if err != nil {
		return err
	}
	of := claimMatter(found.claim, driver.Name, request.GetVolumeId())
	return m.stepOf(ctx, of, StepModify, m.onward(claim.CallModify), func(ctx context.Context) (string, error) {
		if err := m.modifyOnce(ctx, driver, found, name, request); err != nil {
			return "", err
		}
		if class != nil && !maps.Equal(parameters, wanted) {
			return "what was begun", m.beginAnew(found)
		}
		return name, m.modified(found, name)
	})
}

// wantedParameters are what a class says now, nil if it is gone.
func (m *Manager) wantedParameters(found bound, class *storagev1.VolumeAttributesClass) (map[string]string, error) {
	if class == nil {
		return nil, nil
	}
	extra, err := m.extraMetadata(found.volume.Spec.CSI.Driver)
	return claim.MutableParameters(class.Parameters, found.claim, found.volume.Name, extra), err
}

func (m *Manager) modifyRequest(ctx context.Context, volume *corev1.PersistentVolume, parameters map[string]string) (*plugins.Driver, *csi.ControllerModifyVolumeRequest, error) {
	driver, err := m.modifier(ctx, volume.Spec.CSI.Driver)
	if err != nil {
		return nil, nil, err
	}
	secrets, err := m.secret(claim.ModifySecret(volume), "ControllerModifyVolume")
	if err != nil {
		return nil, nil, fmt.Errorf("PersistentVolume %s: %w", volume.Name, err)
	}
	return driver, &csi.ControllerModifyVolumeRequest{
		VolumeId: volume.Spec.CSI.VolumeHandle, Secrets: secrets, MutableParameters: parameters,
	}, nil
}

// modifyAnnotation on a claim has what the driver was given with the first call
// for a class, as JSON, until its answer is final: the calls that follow are the
// same word for word. No secret is among them.
const modifyAnnotation = "holdfast.dev/modify-parameters"

// begunParameters are those of an attempt that is gone on with, nil if there is
// none or nobody wrote them down.
func begunParameters(pvc *corev1.PersistentVolumeClaim, start bool) (parameters map[string]string, err error) {
	text, kept := pvc.Annotations[modifyAnnotation]
	if start || !kept {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &parameters); err != nil {
		return nil, fmt.Errorf("%s: annotation %s: %w", claim.Describe(pvc), modifyAnnotation, err)
	}
	return parameters, nil
}

// beginAnew has a class applied once more: it is another one by now than that
// whose parameters the volume has got.
func (m *Manager) beginAnew(found bound) error {
	uid := string(found.claim.UID)
	known := m.tries.get(uid)
	known.modifySettled = true
	m.tries.set(uid, known)
	return m.writeClaim(found.claim, func(pvc *corev1.PersistentVolumeClaim) { delete(pvc.Annotations, modifyAnnotation) })
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
	parameters, err := json.Marshal(request.GetMutableParameters())
	if err != nil {
		return fmt.Errorf("%s: record the parameters: %w", claim.Describe(found.claim), err)
	}
	err = m.writeClaim(found.claim, func(pvc *corev1.PersistentVolumeClaim) {
		claim.BeginModify(pvc, class, time.Now())
		metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, modifyAnnotation, string(parameters))
	})
	if err != nil {
		return err
	}
	if err := m.hit("modify/intent"); err != nil {
		return err
	}
	m.tell(claimAbout(found.claim), false, reasonModify, fmt.Sprintf("modifying volume %s to VolumeAttributesClass %q", request.GetVolumeId(), class))
	if err := driver.Client.ControllerModifyVolume(ctx, request); err != nil {
		return errors.Join(err, m.modifyRefused(found, err))
	}
	return m.hit("modify/called")
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
		if outcome != claim.OutcomeUncertain {
			delete(pvc.Annotations, modifyAnnotation)
		}
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
		delete(pvc.Annotations, modifyAnnotation)
		return errors.Join(tx.Claims().Put(key, pvc), tx.Volumes().Put(volume.Name, volume))
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	m.tries.drop(string(found.claim.UID))
	m.tell(claimAbout(found.claim), false, reasonModifySuccessful, fmt.Sprintf("the volume has VolumeAttributesClass %q", class))
	return nil
}
