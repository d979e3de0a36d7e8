//go:build kubernetes

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-csi/holdfast/internal/policy/inline"
	"github.com/holdfast-csi/holdfast/internal/policy/policytest"
	"github.com/holdfast-csi/holdfast/internal/policy/webhook"
)

// TestInlinePolicy runs the table of inline cases, which specifies the host's function
// (internal/policy/inline), on the shipped admission policies and on the webhook: each
// must reject, warn and record the same, in the same words.
func TestInlinePolicy(t *testing.T) {
	t.Parallel()
	w := newInlineWorld(t)
	t.Run("policy", func(t *testing.T) {
		remove := w.installPolicies(t, "inline-policy.yaml")
		defer remove()
		w.waitUntilActive(t, 2)
		for _, c := range w.cases {
			w.try(t, c, func(inline.Finding) bool { return !c.Unseen })
		}
		w.checkTypes(t)
	})
	t.Run("read-only", func(t *testing.T) {
		remove := w.installPolicies(t, "inline-read-only.yaml")
		defer remove()
		w.tryReadOnly(t)
	})
	t.Run("webhook", func(t *testing.T) {
		mutate, remove := w.installWebhook(t)
		defer remove()
		w.waitUntilActive(t, 1)
		for _, c := range w.cases {
			w.try(t, c, func(f inline.Finding) bool { return f.Mode != inline.Audit })
		}
		mutate()
		w.tryReadOnly(t)
	})
}

// inlineMark labels the namespaces of this test: other tests use the same API server.
const inlineMark = "holdfast.dev/inline-test"

type inlineWorld struct {
	ctx    context.Context
	core   kubernetes.Interface
	rules  *inline.Policy
	warned *warnings
	// cases have the names of their namespaces.
	cases []policytest.InlineCase
}

// warnings collects the API server's warnings since the last take.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

func newInlineWorld(t *testing.T) *inlineWorld {
	t.Helper()
	rules, err := inline.New(policytest.InlineOptions())
	if err != nil {
		t.Fatal(err)
	}
	w := &inlineWorld{ctx: t.Context(), rules: rules, warned: &warnings{}, cases: policytest.InlineCases()}
	config := rest.CopyConfig(shared)
	config.WarningHandlerWithContext = w.warned
	w.core = kubernetes.NewForConfigOrDie(config)
	for _, driver := range policytest.InlineDrivers() {
		if _, err := w.core.StorageV1().CSIDrivers().Create(w.ctx, driver, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, driver := range policytest.InlineDrivers() {
			if err := w.core.StorageV1().CSIDrivers().Delete(context.WithoutCancel(w.ctx), driver.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	known := map[string]string{}
	for i := range w.cases {
		c := &w.cases[i]
		as := fmt.Sprint(c.Namespace, c.Labels, c.Annotations)
		if c.Namespace == "" {
			c.Namespace = known[as]
		}
		if c.Namespace == "" {
			c.Namespace = fmt.Sprint("inline-", len(known))
		}
		if known[as] == "" {
			known[as] = c.Namespace
			w.makeNamespace(t, w.namespaceOf(*c))
		}
	}
	return w
}

func (w *inlineWorld) namespaceOf(c policytest.InlineCase) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace, Labels: maps.Clone(c.Labels), Annotations: maps.Clone(c.Annotations)}}
}

func (w *inlineWorld) makeNamespace(t *testing.T, namespace *corev1.Namespace) {
	t.Helper()
	metav1.SetMetaDataLabel(&namespace.ObjectMeta, inlineMark, "")
	if _, err := w.core.CoreV1().Namespaces().Create(w.ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := w.core.CoreV1().ServiceAccounts(namespace.Name).Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// installPolicies creates the objects of a manifest with the settings of the table, and
// with warnings in place of audit annotations, because this API server has no audit log.
func (w *inlineWorld) installPolicies(t *testing.T, manifest string) (remove func()) {
	t.Helper()
	installed := installPolicies(w.ctx, t, w.core, shipped(t, manifest), w.configure, func(spec *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
		if spec.ValidationActions[0] == admissionv1.Audit {
			spec.ValidationActions[0] = admissionv1.Warn
		}
	}, func(spec *admissionv1.MutatingAdmissionPolicySpec) {
		spec.MatchConstraints.NamespaceSelector = exemptSelector()
	})
	return func() {
		installed.remove()
		w.waitUntilInactive(t)
	}
}

// configure sets a policy's settings to those of the table, as its values would.
func (w *inlineWorld) configure(spec *admissionv1.ValidatingAdmissionPolicySpec) {
	spec.MatchConstraints.NamespaceSelector = exemptSelector()
	for i := range spec.Variables {
		if spec.Variables[i].Name == "default" {
			spec.Variables[i].Expression = `["` + strings.Join(policytest.InlineDefaults(), `", "`) + `"]`
		}
	}
}

// exemptSelector keeps the rules to the namespaces of this test, but for one.
func exemptSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: inlineMark, Operator: metav1.LabelSelectorOpExists},
		{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{policytest.ExemptNamespace}},
	}}
}

// create makes a dry-run request.
func (w *inlineWorld) create(c policytest.InlineCase) (policytest.Object, error) {
	pod := policytest.Pod(c.Namespace, c.Volumes...)
	w.warned.take()
	if c.Kind == "" {
		return w.core.CoreV1().Pods(c.Namespace).Create(w.ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	object := policytest.Templates(metav1.ObjectMeta{Name: "app", Namespace: c.Namespace}, pod.Spec)[c.Kind]
	return object, createTemplate(w.ctx, w.core, object)
}

// try runs one case on the API server. seen selects the findings of the function that
// the API server must report.
func (w *inlineWorld) try(t *testing.T, c policytest.InlineCase, seen func(inline.Finding) bool) {
	t.Helper()
	object := inline.OfPod(policytest.Pod(c.Namespace, c.Volumes...))
	if c.Kind != "" {
		object.Kind = c.Kind
	}
	var refusals, expected []string
	for _, finding := range w.rules.Judge(object, w.namespaceOf(c), policytest.FindInlineDriver) {
		switch {
		case !seen(finding):
		case finding.Mode == inline.Enforce:
			refusals = append(refusals, finding.Message)
		default:
			expected = append(expected, finding.Message)
		}
	}
	_, err := w.create(c)
	switch {
	case len(refusals) == 0 && err != nil:
		t.Errorf("%s: %v, want it admitted", c.Name, err)
	case len(refusals) > 0 && !apierrors.IsForbidden(err):
		t.Errorf("%s: %v, want it forbidden", c.Name, err)
	case len(refusals) > 0 && !slices.ContainsFunc(refusals, func(m string) bool { return strings.Contains(err.Error(), m) }):
		t.Errorf("%s: refused with %v, want one of %q", c.Name, err, refusals)
	}
	got := w.warned.take()
	for _, message := range expected {
		if !slices.ContainsFunc(got, func(text string) bool { return strings.HasSuffix(text, message) }) {
			t.Errorf("%s: not in the warnings: %q; there is %q", c.Name, message, got)
		}
	}
	if len(got) != len(expected) {
		t.Errorf("%s: warned of %q, want %q", c.Name, got, expected)
	}
}

// waitUntilActive waits until the API server applies all rules and drivers: then a
// volume that no mode allows causes this number of warnings.
func (w *inlineWorld) waitUntilActive(t *testing.T, warned int) {
	t.Helper()
	w.poll(t, func() error {
		for _, c := range []policytest.InlineCase{
			{Namespace: w.cases[0].Namespace, Volumes: []corev1.Volume{policytest.Inline("data", policytest.Unlisted)}},
			{Namespace: w.cases[0].Namespace, Volumes: []corev1.Volume{policytest.Inline("data", policytest.Plain)}},
		} {
			if _, err := w.create(c); !apierrors.IsForbidden(err) {
				return fmt.Errorf("not refused: %w", err)
			}
			if got := w.warned.take(); len(got) != warned {
				return fmt.Errorf("warnings %q", got)
			}
		}
		return nil
	})
}

// waitUntilInactive waits until the API server applies them no more.
func (w *inlineWorld) waitUntilInactive(t *testing.T) {
	t.Helper()
	w.poll(t, func() error {
		pod, err := w.create(policytest.InlineCase{Namespace: w.cases[0].Namespace, Volumes: []corev1.Volume{
			policytest.Inline("a", policytest.Unlisted), policytest.Inline("b", policytest.Plain), policytest.Inline("c", policytest.ReadOnly),
		}})
		if err != nil {
			return err
		}
		if got := w.warned.take(); len(got) > 0 {
			return fmt.Errorf("warnings %q", got)
		}
		return policytest.CheckReadOnly(pod.(*corev1.Pod))
	})
}

func (w *inlineWorld) poll(t *testing.T, done func() error) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(100 * time.Millisecond) {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// checkTypes checks that the controller manager reports no type error of the
// expressions, for any of the kinds that they match.
func (w *inlineWorld) checkTypes(t *testing.T) {
	t.Helper()
	w.poll(t, func() error {
		policies, err := w.core.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(w.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, policy := range policies.Items {
			switch {
			case !strings.Contains(policy.Name, "-inline-"):
			case policy.Status.TypeChecking == nil:
				return fmt.Errorf("policy %s is not checked", policy.Name)
			case len(policy.Status.TypeChecking.ExpressionWarnings) > 0:
				return fmt.Errorf("policy %s: %v", policy.Name, policy.Status.TypeChecking.ExpressionWarnings)
			}
		}
		return nil
	})
}

// tryReadOnly checks the mutation that Mutate makes on a host.
func (w *inlineWorld) tryReadOnly(t *testing.T) {
	t.Helper()
	volumes := []corev1.Volume{
		policytest.Inline("asked", policytest.ReadOnly), policytest.Inline("other", policytest.Writable),
		policytest.Inline("none", policytest.Restricted), policytest.Inline("again", policytest.ReadOnly, "size"),
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	created := func(namespace string) (*corev1.Pod, error) {
		pod, err := w.create(policytest.InlineCase{Namespace: namespace, Volumes: volumes})
		if err != nil {
			return nil, err
		}
		return pod.(*corev1.Pod), nil
	}
	w.poll(t, func() error {
		pod, err := created(w.cases[0].Namespace)
		if err != nil {
			return err
		}
		return policytest.CheckReadOnly(pod, "asked", "again")
	})
	if pod, err := created(policytest.ExemptNamespace); err != nil {
		t.Error(err)
	} else if err := policytest.CheckReadOnly(pod); err != nil {
		t.Errorf("exempt namespace: %v", err)
	}
	untouched, err := w.create(policytest.InlineCase{Namespace: w.cases[0].Namespace, Volumes: volumes[1:3]})
	if err != nil {
		t.Error(err)
	} else if err := policytest.CheckReadOnly(untouched.(*corev1.Pod)); err != nil {
		t.Error(err)
	}
}

// installWebhook starts the command and configures it as a webhook of the API server.
// The test of its handler covers the audit annotations.
func (w *inlineWorld) installWebhook(t *testing.T) (mutate, remove func()) {
	t.Helper()
	address := freeAddress(t)
	certificate, key, authority := selfSigned(t, address)
	defaults := strings.Join(policytest.InlineDefaults(), ",")
	process := holdfast(t, "policy", "webhook", "--listen="+address, "--cert-file="+certificate, "--key-file="+key, "--inline",
		"--inline-enforce="+defaults, "--inline-warn="+defaults, "--inline-audit="+defaults, "--kubeconfig="+sharedFile)
	validating := &admissionv1.ValidatingWebhookConfiguration{}
	for _, document := range documents(t, shipped(t, "inline-webhook.yaml")) {
		var kind metav1.TypeMeta
		if decode(t, document, &kind); kind.Kind == "ValidatingWebhookConfiguration" {
			decode(t, document, validating)
		}
	}
	only := &validating.Webhooks[0]
	here := func(path string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{URL: new("https://" + address + path), CABundle: authority}
	}
	only.ClientConfig, only.NamespaceSelector = here(*only.ClientConfig.Service.Path), exemptSelector()
	mutating := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: validating.Name}, Webhooks: []admissionv1.MutatingWebhook{{
		Name: only.Name, AdmissionReviewVersions: only.AdmissionReviewVersions, SideEffects: only.SideEffects,
		ClientConfig: here(webhook.ReadOnlyPath), NamespaceSelector: exemptSelector(), Rules: only.Rules[:1],
	}}}
	client := w.core.AdmissionregistrationV1()
	if _, err := client.ValidatingWebhookConfigurations().Create(w.ctx, validating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mutate = func() {
		if _, err := client.MutatingWebhookConfigurations().Create(w.ctx, mutating, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return mutate, func() {
		ctx := context.WithoutCancel(w.ctx)
		err := errors.Join(client.ValidatingWebhookConfigurations().Delete(ctx, validating.Name, metav1.DeleteOptions{}),
			client.MutatingWebhookConfigurations().Delete(ctx, mutating.Name, metav1.DeleteOptions{}))
		if err != nil {
			t.Error(err)
		}
		w.waitUntilInactive(t)
		if code := process.terminate(t); code != 0 {
			t.Errorf("the webhook ends with %d", code)
		}
	}
}
