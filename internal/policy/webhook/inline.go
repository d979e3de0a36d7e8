package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/policy/inline"
)

// Cluster has the objects that the inline rules need in addition to the reviewed one.
// A missing object is nil; an error means that its state is unknown.
type Cluster interface {
	Namespace(ctx context.Context, name string) (*corev1.Namespace, error)
	Driver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
}

// Inline applies the rules of inline volumes.
type Inline struct {
	Rules   *inline.Policy
	Cluster Cluster
}

// drivers reads CSIDrivers for one review, and keeps the error of a failed read.
type drivers struct {
	ctx     context.Context
	cluster Cluster
	failed  error
}

func (d *drivers) find(name string) *storagev1.CSIDriver {
	driver, err := d.cluster.Driver(d.ctx, name)
	if err != nil && d.failed == nil {
		d.failed = fmt.Errorf("%w: CSIDriver %.100q: %w", errUnknown, name, err)
	}
	return driver
}

// validate decides about the creation of a pod, and warns of templates.
func (i *Inline) validate(
	ctx context.Context, request *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse,
) {
	findings, err := i.judge(ctx, request)
	if err != nil {
		refuse(response, err)
		return
	}
	var refusals []error
	for _, f := range findings {
		switch f.Mode {
		case inline.Enforce:
			refusals = append(refusals, errors.New(f.Message))
		case inline.Warn:
			response.Warnings = append(response.Warnings, f.Message)
		case inline.Audit:
			if response.AuditAnnotations == nil {
				response.AuditAnnotations = map[string]string{}
			}
			response.AuditAnnotations[key(response.AuditAnnotations, string(f.Rule))] = f.Message
		}
	}
	if len(refusals) > 0 {
		refuse(response, errors.Join(refusals...))
	}
}

// key returns a key that the annotations lack: several drivers may violate a rule.
func key(annotations map[string]string, rule string) string {
	for name, n := rule, 2; ; n++ {
		if _, taken := annotations[name]; !taken {
			return name
		}
		name = fmt.Sprintf("%s-%d", rule, n)
	}
}

func (i *Inline) judge(ctx context.Context, request *admissionv1.AdmissionRequest) ([]inline.Finding, error) {
	if len(request.Object.Raw) == 0 || request.Kind.Kind == "Pod" && !creates(request) {
		return nil, nil // a pod's volumes never change
	}
	checked, err := podOf(request)
	if err != nil {
		return nil, err
	}
	namespace, err := i.Cluster.Namespace(ctx, request.Namespace)
	if err != nil {
		return nil, fmt.Errorf("%w: namespace %.100q: %w", errUnknown, request.Namespace, err)
	}
	checked.object.Namespace = request.Namespace
	lookup := &drivers{ctx: ctx, cluster: i.Cluster}
	findings := i.Rules.Judge(inline.Object{ObjectMeta: checked.object, Kind: request.Kind.Kind, Spec: checked.spec},
		namespace, lookup.find)
	return findings, lookup.failed
}

func creates(request *admissionv1.AdmissionRequest) bool {
	return request.Operation == admissionv1.Create && request.SubResource == ""
}

// operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// mutate makes inline volumes read-only whose drivers require it.
func (i *Inline) mutate(
	ctx context.Context, request *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse,
) {
	if request.Kind.Kind != "Pod" || !creates(request) {
		return
	}
	object, err := read[corev1.Pod](request)
	if err != nil {
		refuse(response, err)
		return
	}
	object.Namespace = request.Namespace
	lookup := &drivers{ctx: ctx, cluster: i.Cluster}
	var patch []operation
	for _, path := range i.Rules.Mutate(object, lookup.find) {
		patch = append(patch, operation{"add", path, true})
	}
	if lookup.failed != nil {
		refuse(response, lookup.failed)
		return
	}
	if len(patch) == 0 {
		return
	}
	if response.Patch, err = json.Marshal(patch); err != nil {
		refuse(response, err)
		return
	}
	response.PatchType = new(admissionv1.PatchTypeJSONPatch)
}
