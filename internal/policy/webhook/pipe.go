package webhook

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/policy"
)

// pipes applies the rule of csi-proxy's pipes. It checks templates too, so that their
// authors see the error before a pod is made.
type pipes struct{ rule *policy.Rule }

func (p pipes) answer(
	_ context.Context, request *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse,
) {
	if err := p.check(request); err != nil {
		refuse(response, err)
	}
}

// check applies the rule to the object of a request; nil admits it.
func (p pipes) check(request *admissionv1.AdmissionRequest) error {
	if len(request.Object.Raw) == 0 {
		return nil // a deletion has no object
	}
	if object, err := read[metav1.PartialObjectMetadata](request); err == nil && object.DeletionTimestamp != nil {
		return nil // it must be able to lose its finalizers
	}
	if request.Kind.Kind == "PersistentVolume" {
		volume, err := read[corev1.PersistentVolume](request)
		if err != nil {
			return err
		}
		return p.rule.CheckVolume(volume)
	}
	checked, err := podOf(request)
	if err != nil {
		return err
	}
	return p.rule.CheckPod(policy.Pod{Namespace: request.Namespace, Labels: checked.labels, Spec: checked.spec})
}
