package webhook

import (
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"github.com/holdfast-csi/holdfast/internal/quantity"
)

var (
	// errUnread means that the object could not be decoded.
	errUnread = errors.New("object cannot be read")
	// errUnknown means that the API server did not return what a rule needs.
	errUnknown = errors.New("cannot be decided now")
)

// kinds are the kinds of objects that this webhook knows.
var kinds = []string{
	"Pod", "PodTemplate", "ReplicationController", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "PersistentVolume",
}

// pod is a pod, or the template of pods in an object.
type pod struct {
	object metav1.ObjectMeta
	labels map[string]string // of the pod or the template
	spec   *corev1.PodSpec
}

// controller is a Deployment, ReplicaSet, StatefulSet, DaemonSet or Job with the fields that
// rules read. The types of apps/v1 and batch/v1 would link half a megabyte of methods.
type controller struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              templated `json:"spec"`
}

// cronJob is a CronJob with the fields that rules read.
type cronJob struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobTemplate struct {
			Spec templated `json:"spec"`
		} `json:"jobTemplate"`
	} `json:"spec"`
}

// templated is a specification with the template of pods.
type templated struct {
	Template corev1.PodTemplateSpec `json:"template"`
}

// podOf finds the pod or the template in an object.
func podOf(request *admissionv1.AdmissionRequest) (pod, error) {
	switch request.Kind.Kind {
	case "Pod":
		return readPod(request, func(o *corev1.Pod) pod { return pod{o.ObjectMeta, o.Labels, &o.Spec} })
	case "PodTemplate":
		return readPod(request, func(o *corev1.PodTemplate) pod { return ofTemplate(o.ObjectMeta, &o.Template) })
	case "ReplicationController":
		return readPod(request, func(o *corev1.ReplicationController) pod {
			if o.Spec.Template == nil {
				return pod{object: o.ObjectMeta, spec: &corev1.PodSpec{}}
			}
			return ofTemplate(o.ObjectMeta, o.Spec.Template)
		})
	case "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job":
		return readPod(request, func(o *controller) pod { return ofTemplate(o.ObjectMeta, &o.Spec.Template) })
	case "CronJob":
		return readPod(request, func(o *cronJob) pod { return ofTemplate(o.ObjectMeta, &o.Spec.JobTemplate.Spec.Template) })
	}
	return pod{}, fmt.Errorf("%w: this webhook does not know the kind %.200q; remove it from the rules of its configuration", errUnread, request.Kind.String())
}

func ofTemplate(object metav1.ObjectMeta, template *corev1.PodTemplateSpec) pod {
	return pod{object, template.Labels, &template.Spec}
}

func readPod[T any](request *admissionv1.AdmissionRequest, of func(*T) pod) (pod, error) {
	object, err := read[T](request)
	if err != nil {
		return pod{}, err
	}
	return of(object), nil
}

// read decodes like the API server, with regard to the case of names: both must read the
// same object.
func read[T any](request *admissionv1.AdmissionRequest) (*T, error) {
	object := new(T)
	if err := quantity.CheckJSON(request.Object.Raw, object); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUnread, request.Kind.String(), err)
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(request.Object.Raw, object); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUnread, request.Kind.String(), err)
	}
	return object, nil
}

// refuse makes a response reject the request, with a reason.
func refuse(response *admissionv1.AdmissionResponse, why error) {
	response.Allowed = false
	response.Result = &metav1.Status{Status: metav1.StatusFailure, Message: why.Error(),
		Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden}
	switch {
	case errors.Is(why, errUnread):
		response.Result.Reason, response.Result.Code = metav1.StatusReasonBadRequest, http.StatusBadRequest
	case errors.Is(why, errUnknown):
		response.Result.Reason, response.Result.Code = metav1.StatusReasonInternalError, http.StatusInternalServerError
	}
}
