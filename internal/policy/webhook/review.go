package webhook

import (
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"github.com/holdfast-csi/holdfast/internal/policy"
)

// errUnread says that the object could not be read, so nothing is known of it.
var errUnread = errors.New("object cannot be read")

// kinds are those that check knows.
var kinds = []string{
	"Pod", "PodTemplate", "ReplicationController", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "PersistentVolume",
}

// check applies the rule to the object of a request; nil admits it. Templates
// are checked so that their author learns of it: the pods made of them count.
func check(rule *policy.Rule, request *admissionv1.AdmissionRequest) error {
	if len(request.Object.Raw) == 0 {
		return nil // a deletion has no object
	}
	if object, err := read[metav1.PartialObjectMetadata](request); err == nil && object.DeletionTimestamp != nil {
		return nil // it must be able to lose its finalizers
	}
	switch request.Kind.Kind {
	case "Pod":
		return checkAs(rule, request, func(o *corev1.Pod) policy.Pod { return policy.Pod{Labels: o.Labels, Spec: &o.Spec} })
	case "PodTemplate":
		return checkAs(rule, request, func(o *corev1.PodTemplate) policy.Pod { return ofTemplate(&o.Template) })
	case "ReplicationController":
		return checkAs(rule, request, func(o *corev1.ReplicationController) policy.Pod {
			if o.Spec.Template == nil {
				return policy.Pod{Spec: &corev1.PodSpec{}}
			}
			return ofTemplate(o.Spec.Template)
		})
	case "Deployment":
		return checkAs(rule, request, func(o *appsv1.Deployment) policy.Pod { return ofTemplate(&o.Spec.Template) })
	case "ReplicaSet":
		return checkAs(rule, request, func(o *appsv1.ReplicaSet) policy.Pod { return ofTemplate(&o.Spec.Template) })
	case "StatefulSet":
		return checkAs(rule, request, func(o *appsv1.StatefulSet) policy.Pod { return ofTemplate(&o.Spec.Template) })
	case "DaemonSet":
		return checkAs(rule, request, func(o *appsv1.DaemonSet) policy.Pod { return ofTemplate(&o.Spec.Template) })
	case "Job":
		return checkAs(rule, request, func(o *batchv1.Job) policy.Pod { return ofTemplate(&o.Spec.Template) })
	case "CronJob":
		return checkAs(rule, request, func(o *batchv1.CronJob) policy.Pod { return ofTemplate(&o.Spec.JobTemplate.Spec.Template) })
	case "PersistentVolume":
		volume, err := read[corev1.PersistentVolume](request)
		if err != nil {
			return err
		}
		return rule.CheckVolume(volume)
	}
	return fmt.Errorf("%w: this webhook knows nothing of the kind %.200q; take it out of its rules", errUnread, request.Kind.String())
}

func ofTemplate(template *corev1.PodTemplateSpec) policy.Pod {
	return policy.Pod{Labels: template.Labels, Spec: &template.Spec}
}

func checkAs[T any](rule *policy.Rule, request *admissionv1.AdmissionRequest, pod func(*T) policy.Pod) error {
	object, err := read[T](request)
	if err != nil {
		return err
	}
	checked := pod(object)
	checked.Namespace = request.Namespace
	return rule.CheckPod(checked)
}

// read decodes as the API server does, that is with the case of names: an object
// must not look one way to it and another way here.
func read[T any](request *admissionv1.AdmissionRequest) (*T, error) {
	object := new(T)
	if err := json.UnmarshalCaseSensitivePreserveInts(request.Object.Raw, object); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUnread, request.Kind.String(), err)
	}
	return object, nil
}

// answer is the response to a request (k8s.io/api/admission/v1, AdmissionResponse).
func answer(rule *policy.Rule, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	err := check(rule, request)
	if err == nil {
		return response
	}
	response.Allowed = false
	response.Result = &metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Reason: metav1.StatusReasonForbidden, Code: 403}
	if errors.Is(err, errUnread) {
		response.Result.Reason, response.Result.Code = metav1.StatusReasonBadRequest, 400
	}
	return response
}
