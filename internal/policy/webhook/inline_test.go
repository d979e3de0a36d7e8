package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/policy/inline"
	"github.com/holdfast-csi/holdfast/internal/policy/policytest"
)

// table is a cluster with the drivers of the table, and one namespace.
type table struct {
	namespace *corev1.Namespace
	failed    error
}

func (c table) Namespace(context.Context, string) (*corev1.Namespace, error) {
	return c.namespace, c.failed
}

func (c table) Driver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	return policytest.FindInlineDriver(name), nil
}

// lost knows namespaces, and has lost the API server.
type lost struct{ table }

func (lost) Driver(context.Context, string) (*storagev1.CSIDriver, error) {
	return nil, errors.New("connection refused")
}

func newInline(t *testing.T, cluster Cluster) *Inline {
	t.Helper()
	rules, err := inline.New(policytest.InlineOptions())
	if err != nil {
		t.Fatal(err)
	}
	return &Inline{rules, cluster}
}

// ask posts a review as an API server does.
func ask(t *testing.T, answer func(context.Context, *admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse),
	operation admissionv1.Operation, subresource, kind string, object any,
) *admissionv1.AdmissionResponse {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	meta, ok := object.(metav1.Object)
	if !ok {
		t.Fatalf("%T", object)
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u-1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: kind}, Namespace: meta.GetNamespace(), Name: meta.GetName(),
			Operation: operation, SubResource: subresource, Object: runtime.RawExtension{Raw: raw},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := &handler{answer: answer, log: slog.New(slog.DiscardHandler), reviews: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"kind", "decision"})}
	recorder := post(t, h, "application/json", string(body))
	var got admissionv1.AdmissionReview
	if err := json.NewDecoder(bytes.NewReader(recorder.Body.Bytes())).Decode(&got); err != nil || recorder.Code != http.StatusOK || got.Response == nil {
		t.Fatalf("%d: %s (%v)", recorder.Code, recorder.Body, err)
	}
	return got.Response
}

// objectOf is a case's object and its kind.
func objectOf(c policytest.InlineCase) (kind string, object policytest.Object) {
	pod := policytest.Pod(c.Namespace, c.Volumes...)
	if c.Kind == "" {
		return "Pod", pod
	}
	return c.Kind, policytest.Templates(metav1.ObjectMeta{Name: "app", Namespace: c.Namespace}, pod.Spec)[c.Kind]
}

func TestInline_decidesTheTable(t *testing.T) {
	for _, c := range policytest.InlineCases() {
		if c.Namespace == "" {
			c.Namespace = "shop"
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace, Labels: c.Labels, Annotations: c.Annotations}}
		webhook := newInline(t, table{namespace: namespace})
		kind, object := objectOf(c)
		got := ask(t, webhook.validate, admissionv1.Create, "", kind, object)
		said := map[inline.Mode]string{inline.Warn: strings.Join(got.Warnings, "\n")}
		if !got.Allowed {
			said[inline.Enforce] = got.Result.Message
		}
		audited := ""
		for key, text := range got.AuditAnnotations {
			audited += key + " " + text + "\n"
		}
		said[inline.Audit] = audited
		count := map[inline.Mode]int{}
		for _, want := range c.Want {
			count[want.Mode]++
			if text := said[want.Mode]; !strings.Contains(text, "inline volume "+want.Volume) || !strings.Contains(text, "(rule "+string(want.Rule)) {
				t.Errorf("%s: %v is not in %q", c.Name, want, text)
			}
		}
		if count[inline.Enforce] > 0 == got.Allowed || count[inline.Warn] != len(got.Warnings) || count[inline.Audit] != len(got.AuditAnnotations) {
			t.Errorf("%s: %+v, want %v", c.Name, got, c.Want)
		}
	}
}

// A pod's volumes never change, and ephemeral containers add none; a template's may.
func TestInline_isAboutCreation(t *testing.T) {
	webhook := newInline(t, table{})
	pod := policytest.Pod("shop", policytest.Inline("data", policytest.Unlisted))
	for _, c := range []struct {
		operation   admissionv1.Operation
		subresource string
		allowed     bool
	}{
		{admissionv1.Create, "", false}, {admissionv1.Update, "", true}, {admissionv1.Update, "ephemeralcontainers", true}, {admissionv1.Create, "binding", true},
	} {
		if got := ask(t, webhook.validate, c.operation, c.subresource, "Pod", pod); got.Allowed != c.allowed {
			t.Errorf("%s %s: allowed %v", c.operation, c.subresource, got.Allowed)
		}
	}
	deployment := policytest.Templates(metav1.ObjectMeta{Name: "app", Namespace: "shop"}, pod.Spec)["Deployment"]
	if got := ask(t, webhook.validate, admissionv1.Update, "", "Deployment", deployment); !got.Allowed || len(got.Warnings) == 0 {
		t.Errorf("a template's update: %+v", got)
	}
}

// A missing or null field of an object is not an error.
func TestInline_takesObjectsWithoutASpec(t *testing.T) {
	webhook := newInline(t, table{})
	for _, object := range []string{`{}`, `null`, `{"spec":null}`, `{"spec":{"volumes":null}}`, `{"spec":{"volumes":[{"name":"x"},{}]}}`, `{"spec":{"template":null}}`} {
		for _, kind := range slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return k == "PersistentVolume" }) {
			request := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Kind: kind}, Object: runtime.RawExtension{Raw: []byte(object)}}
			for _, answer := range []func(context.Context, *admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse){webhook.validate, webhook.mutate} {
				response := &admissionv1.AdmissionResponse{Allowed: true}
				if answer(t.Context(), request, response); !response.Allowed || len(response.Warnings) > 0 || response.Patch != nil {
					t.Errorf("%s %s: %+v", kind, object, response)
				}
			}
		}
	}
}

// An object whose namespace or driver cannot be read is not admitted.
func TestInline_refusesWhatItCannotDecide(t *testing.T) {
	pod := policytest.Pod("shop", policytest.Inline("data", policytest.Restricted))
	for name, got := range map[string]*admissionv1.AdmissionResponse{
		"namespace":          ask(t, newInline(t, table{failed: errors.New("timeout")}).validate, admissionv1.Create, "", "Pod", pod),
		"driver":             ask(t, newInline(t, lost{}).validate, admissionv1.Create, "", "Pod", pod),
		"driver of mutation": ask(t, newInline(t, lost{}).mutate, admissionv1.Create, "", "Pod", pod),
	} {
		if got.Allowed || got.Result.Code != 500 || !strings.Contains(got.Result.Message, "cannot be decided now") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := ask(t, newInline(t, table{}).validate, admissionv1.Create, "", "ConfigMap", &corev1.ConfigMap{}); got.Allowed || got.Result.Code != 400 {
		t.Errorf("a kind that it does not know: %+v", got)
	}
}

func TestInline_patchesWhatIsToBeReadOnly(t *testing.T) {
	webhook := newInline(t, table{})
	pod := policytest.Pod("shop", policytest.Inline("a", policytest.Writable), policytest.Inline("b", policytest.ReadOnly))
	got := ask(t, webhook.mutate, admissionv1.Create, "", "Pod", pod)
	var patch []operation
	if err := json.Unmarshal(got.Patch, &patch); err != nil || !got.Allowed || *got.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Fatalf("%+v: %v", got, err)
	}
	var paths []string
	for _, o := range patch {
		paths = append(paths, o.Path)
		if o.Op != "add" || o.Value != true {
			t.Errorf("%+v", o)
		}
	}
	want := []string{
		"/spec/volumes/1/csi/readOnly", "/spec/initContainers/0/volumeMounts/2/readOnly", "/spec/initContainers/0/volumeMounts/3/readOnly",
		"/spec/containers/0/volumeMounts/2/readOnly", "/spec/containers/0/volumeMounts/3/readOnly",
	}
	if !slices.Equal(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
	for _, c := range []struct {
		operation admissionv1.Operation
		pod       *corev1.Pod
	}{
		{admissionv1.Update, pod}, {admissionv1.Create, policytest.Pod("shop", policytest.Inline("a", policytest.Writable))},
		{admissionv1.Create, policytest.Pod(policytest.ExemptNamespace, policytest.Inline("a", policytest.ReadOnly))},
	} {
		if got := ask(t, webhook.mutate, c.operation, "", "Pod", c.pod); !got.Allowed || got.Patch != nil {
			t.Errorf("%+v", got)
		}
	}
}
