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
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// StepModify changes a volume's attributes.
const StepModify Step = "modify"

// Reasons of events, as external-resizer has them.
const (
	reasonModify           = "VolumeModify"
	reasonModifyFailed     = "VolumeModifyFailed"
	reasonModifySuccessful = "VolumeModifySuccessful"
	reasonModifyCanceled   = "VolumeModifyCanceled"
)

// asksForClass reports whether a claim asks for other attributes than its volume has, or
// an earlier request is not complete.
func asksForClass(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Status.Phase == corev1.ClaimBound && claim.ModifyOf(pvc).Step() != claim.ModifyNothing
}

// syncModification changes a claim's volume to the desired attributes (KEP 3751).
func (m *Manager) syncModification(ctx context.Context, key string) (time.Duration, error) {
	found, err := m.changeable(key)
	if err != nil || found.volume == nil {
		return 0, err
	}
	pause, err := m.modify(ctx, found)
	return m.explainChange(modifications, found.claim, reasonModifyFailed, pause, err)
}

func (m *Manager) modify(ctx context.Context, found bound) (pause time.Duration, err error) {
	step := lifecycle.NextModify(claim.ModifyOf(found.claim), m.modifications.get(string(found.claim.UID)), time.Now())
	switch step.Action {
	case claim.ModifyNothing:
		return 0, nil
	case claim.ModifyWait:
		return step.After, nil
	case claim.ModifyCancel:
		m.recordEvent(claimAbout(found.claim), false, reasonModifyCanceled,
			"the claim names no VolumeAttributesClass any more; the volume stays as it is")
		return 0, m.editClaim(found.claim, claim.CancelModify)
	}
	return m.applyClass(ctx, found, step.Class, step.Action == claim.ModifyStart)
}

// applyClass modifies a claim's volume according to a class. start is false for an
// attempt that may still be running. After an error, pause is the time until the next
// attempt if that is not the ordinary one.
func (m *Manager) applyClass(
	ctx context.Context, found bound, name string, start bool,
) (pause time.Duration, err error) {
	class, err := m.attributesClassOf(name)
	if err != nil {
		return 0, err
	}
	parameters, err := recordedParameters(found.claim, start)
	switch {
	case err != nil:
		return 0, err
	case parameters != nil: // the class may have been replaced or deleted since
	case class == nil:
		if start {
			err = m.editClaim(found.claim, claim.PendModify)
		}
		return 0, errors.Join(err, waitFor(dependencies(dependency("volumeattributesclasses", name)), "",
			"VolumeAttributesClass %q does not exist", name))
	default:
		if text := lifecycle.ForeignClass(class, found.volume.Spec.CSI.Driver); text != "" {
			return 0, m.rejectForeign(found, name, text)
		}
	}
	desired, err := m.desiredParameters(found, class)
	if err != nil {
		return 0, err
	}
	if parameters == nil {
		parameters = desired
	}
	driver, request, err := m.modifyRequest(ctx, found.volume, parameters)
	if err != nil {
		return 0, err
	}
	of := claimSubject(found.claim, driver.Name, request.GetVolumeId())
	err = m.stepOf(ctx, of, StepModify, onward(claim.CallModify), func(ctx context.Context) (_ string, err error) {
		if pause, err = m.attemptModify(ctx, driver, found, name, request); err != nil {
			return "", err
		}
		if class != nil && !maps.Equal(parameters, desired) {
			return name + ", as it was", m.restartModify(found)
		}
		return name, m.recordModified(found, name)
	})
	return pause, err
}

// desiredParameters returns the parameters of a class, nil if it was deleted.
func (m *Manager) desiredParameters(
	found bound, class *storagev1.VolumeAttributesClass,
) (map[string]string, error) {
	if class == nil {
		return nil, nil
	}
	extra, err := m.extraMetadata(found.volume.Spec.CSI.Driver)
	return claim.MutableParameters(class.Parameters, found.claim, found.volume.Name, extra), err
}

func (m *Manager) modifyRequest(
	ctx context.Context, volume *corev1.PersistentVolume, parameters map[string]string,
) (*plugins.Driver, *csi.ControllerModifyVolumeRequest, error) {
	driver, err := m.options.Drivers.Driver(volume.Spec.CSI.Driver)
	if err != nil {
		return nil, nil, err
	}
	can, err := driver.Client.ControllerCapabilities(ctx)
	if err == nil && !can.Modify {
		// A failure, since those are tried again when another driver comes.
		err = errors.New(lifecycle.UnableToModify(driver.Name))
	}
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

// modifyAnnotation on a claim has the parameters of the first call for a class, as
// JSON, until the driver's answer is final. The calls that follow repeat them. They
// include no secret.
const modifyAnnotation = "holdfast.dev/modify-parameters"

// recordedParameters returns the parameters of an attempt that may still be running,
// nil if none are recorded.
func recordedParameters(pvc *corev1.PersistentVolumeClaim, start bool) (parameters map[string]string, err error) {
	text, kept := pvc.Annotations[modifyAnnotation]
	if start || !kept {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &parameters); err != nil {
		return nil, fmt.Errorf("%s: annotation %s: %w", claim.Describe(pvc), modifyAnnotation, err)
	}
	return parameters, nil
}

// restartModify has a class applied again: its parameters have changed since the call
// that was repeated.
func (m *Manager) restartModify(found bound) error {
	history := m.modifications.get(string(found.claim.UID))
	history.Final = true
	m.modifications.learn(found.claim, history)
	return m.editClaim(found.claim, func(pvc *corev1.PersistentVolumeClaim) {
		delete(pvc.Annotations, modifyAnnotation)
	})
}

// attemptModify is one attempt: the intent, the call, the outcome. After an error,
// pause is as in applyClass.
func (m *Manager) attemptModify(
	ctx context.Context, driver *plugins.Driver, found bound, class string, request *csi.ControllerModifyVolumeRequest,
) (pause time.Duration, err error) {
	parameters, err := json.Marshal(request.GetMutableParameters())
	if err != nil {
		return 0, fmt.Errorf("%s: record the parameters: %w", claim.Describe(found.claim), err)
	}
	err = m.editClaim(found.claim, func(pvc *corev1.PersistentVolumeClaim) {
		claim.BeginModify(pvc, class, time.Now())
		metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, modifyAnnotation, string(parameters))
	})
	if err != nil {
		return 0, err
	}
	if err := m.hit("modify/intent"); err != nil {
		return 0, err
	}
	m.recordEvent(claimAbout(found.claim), false, reasonModify,
		fmt.Sprintf("modifying volume %s to VolumeAttributesClass %q", request.GetVolumeId(), class))
	if err := driver.Client.ControllerModifyVolume(ctx, request); err != nil {
		return m.modifyFailed(found, class, err)
	}
	return 0, m.hit("modify/called")
}

func (m *Manager) modifyFailed(found bound, class string, failure error) (time.Duration, error) {
	desired := attributesClass(found.claim)
	then := lifecycle.AfterFailedModify(class, desired, failure, time.Now(), lifecycle.InfeasiblePause)
	m.modifications.learn(found.claim, then.History)
	err := m.editClaim(found.claim, func(pvc *corev1.PersistentVolumeClaim) {
		claim.FailModify(pvc, then.Outcome, client.CodeName(failure), shorten(failure.Error()), time.Now())
		if then.History.Final {
			delete(pvc.Annotations, modifyAnnotation)
		}
	})
	return pauseAfter(then, failure, err)
}

// rejectForeign records that a class is for another driver. The volume's driver is
// not called.
func (m *Manager) rejectForeign(found bound, class, text string) error {
	err := m.editClaim(found.claim, func(pvc *corev1.PersistentVolumeClaim) {
		claim.RejectModify(pvc, class, text, time.Now())
	})
	return errors.Join(err, waitFor(dependencies(dependency("volumeattributesclasses", class)), "", "%s", text))
}

// recordModified writes success, to volume and claim at once.
func (m *Manager) recordModified(found bound, class string) error {
	err := m.editBound(found, func(pvc *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) {
		volume.Spec.VolumeAttributesClassName = &class
		claim.FinishModify(pvc, class)
		delete(pvc.Annotations, modifyAnnotation)
	})
	if err != nil {
		return err
	}
	m.modifications.learn(found.claim, lifecycle.History{})
	m.recordEvent(claimAbout(found.claim), false, reasonModifySuccessful,
		fmt.Sprintf("the volume has VolumeAttributesClass %q", class))
	return nil
}
