package chart

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// inlineDocuments are those of the rules of inline volumes.
func inlineDocuments(t *testing.T, values string) []Document {
	t.Helper()
	documents, err := load(t).Render(Options{Release: "release", Namespace: "storage", Values: values})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(documents, func(d Document) bool { return !strings.Contains(d.Name, "-inline") })
}

func TestInlinePolicy_isOffUnlessAskedFor(t *testing.T) {
	for _, document := range inlineDocuments(t, "{backend: local}") {
		t.Errorf("%s %s is there", document.Kind, document.Name)
	}
}

// Each mode has two policies, with the action of the mode; no mode rejects templates.
func TestInlinePolicy_hasEachModeTwice(t *testing.T) {
	values := "{inlinePolicy: {kind: policy, exemptNamespaces: [a, b], defaults: {warn: [x.example, y.example]}}}"
	documents := render(t, values)
	actions := map[string]admissionv1.ValidationAction{}
	for _, binding := range of[*admissionv1.ValidatingAdmissionPolicyBinding](documents) {
		actions[binding.Spec.PolicyName] = binding.Spec.ValidationActions[0]
	}
	count := 0
	for _, policy := range of[*admissionv1.ValidatingAdmissionPolicy](documents) {
		if !strings.Contains(policy.Name, "-inline-") {
			continue
		}
		count++
		name, _, _ := strings.Cut(policy.Name, ".")
		mode := name[strings.LastIndexByte(name, '-')+1:]
		if want := map[string]admissionv1.ValidationAction{"enforce": admissionv1.Deny, "warn": admissionv1.Warn, "audit": admissionv1.Audit}[mode]; actions[policy.Name] != want {
			t.Errorf("%s: action %q, want %q", policy.Name, actions[policy.Name], want)
		}
		match := policy.Spec.MatchConstraints
		if exempt := match.NamespaceSelector.MatchExpressions[0]; !slices.Equal(exempt.Values, []string{"a", "b"}) {
			t.Errorf("%s: exempt %v", policy.Name, exempt)
		}
		if templates := len(match.ResourceRules) > 1; templates != (mode != "enforce") {
			t.Errorf("%s: it looks at templates is %v", policy.Name, templates)
		}
		for _, variable := range policy.Spec.Variables {
			want := map[string]string{"warn": `["x.example","y.example"]`}[mode]
			if want == "" {
				want = `["*"]`
			}
			if variable.Name == "default" && variable.Expression != want {
				t.Errorf("%s: the default is %s, want %s", policy.Name, variable.Expression, want)
			}
		}
	}
	if count != 6 {
		t.Errorf("%d policies", count)
	}
	if mutating := of[*admissionv1.MutatingAdmissionPolicy](documents); len(mutating) > 0 {
		t.Error("volumes are changed without being asked for")
	}
}

// The rule of profiles can be left out, and nothing of it stays.
func TestInlinePolicy_withoutProfiles(t *testing.T) {
	for _, document := range inlineDocuments(t, "{inlinePolicy: {kind: policy, profiles: false}}") {
		if strings.Contains(document.YAML, "inline-profile") || strings.Contains(document.YAML, "tooOpen") {
			t.Errorf("%s compares profiles", document.Name)
		}
	}
}

// The webhook has the flags of the values, a token, and only the rights to read its
// objects.
func TestInlineWebhook_readsNamespacesAndDrivers(t *testing.T) {
	documents := render(t, "{inlinePolicy: {kind: webhook, setReadOnly: true, profiles: false, defaults: {enforce: [x.example, y.example]}, webhook: {secretName: s}}}")
	for _, deployment := range of[*appsv1.Deployment](documents) {
		if !strings.HasSuffix(deployment.Name, "-inline") {
			continue
		}
		pod := deployment.Spec.Template.Spec
		for _, want := range []string{"--inline", "--inline-enforce=x.example,y.example", "--inline-warn=*", "--inline-profiles=false"} {
			if !slices.Contains(pod.Containers[0].Args, want) {
				t.Errorf("the arguments %q lack %s", pod.Containers[0].Args, want)
			}
		}
		if !*pod.AutomountServiceAccountToken {
			t.Error("it has no token")
		}
	}
	var rules []rbacv1.PolicyRule
	for _, role := range of[*rbacv1.ClusterRole](documents) {
		if strings.Contains(role.Name, "-inline.") {
			rules = role.Rules
		}
	}
	if len(rules) != 2 || slices.Contains(slices.Concat(rules[0].Verbs, rules[1].Verbs), "update") {
		t.Errorf("its rights are %v", rules)
	}
	mutating := of[*admissionv1.MutatingWebhookConfiguration](documents)
	if len(mutating) != 1 || *mutating[0].Webhooks[0].ReinvocationPolicy != admissionv1.IfNeededReinvocationPolicy ||
		!slices.Equal(mutating[0].Webhooks[0].Rules[0].Resources, []string{"pods"}) || *mutating[0].Webhooks[0].ClientConfig.Service.Path != "/mutate-inline" {
		t.Errorf("%+v", mutating)
	}
	if accounts := of[*corev1.ServiceAccount](documents); !slices.ContainsFunc(accounts, func(a *corev1.ServiceAccount) bool { return strings.HasSuffix(a.Name, "-inline") }) {
		t.Error("the ServiceAccount is missing")
	}
}

func TestInlinePolicy_refusesValuesThatCannotBe(t *testing.T) {
	for _, values := range []string{
		"{inlinePolicy: {kind: webhook}}", "{inlinePolicy: {kind: other}}", "{inlinePolicy: {defaults: {enforce: ['a,b']}}}",
		"{inlinePolicy: {defaults: {refuse: ['*']}}}", "{inlinePolicy: {defaults: {enforce: ['*.example']}}}",
	} {
		if _, err := load(t).Render(Options{Release: "r", Namespace: "n", Values: values}); err == nil {
			t.Errorf("%s is taken", values)
		}
	}
}
