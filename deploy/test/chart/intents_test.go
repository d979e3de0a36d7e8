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

// writesConfigMaps reports whether a rule changes ConfigMaps of any name.
func writesConfigMaps(rule rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rule.Resources, func(r string) bool { return r == "configmaps" || r == "*" }) &&
		slices.ContainsFunc(rule.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
}

// TestRoles_changeConfigMapsNowhereButInTheNamespaceOfIntents: a ConfigMap may
// be anything, such as aws-auth, which decides who administers an EKS cluster.
func TestRoles_changeConfigMapsNowhereButInTheNamespaceOfIntents(t *testing.T) {
	for name, values := range installations() {
		t.Run(name, func(t *testing.T) {
			checkConfigMaps(t, render(t, values), "storage", "release-holdfast-intents")
		})
	}
	t.Run("sidecars", func(t *testing.T) {
		checkConfigMaps(t, decode(t, sidecarRoles().Text), "", "holdfast-intents")
	})
}

func checkConfigMaps(t *testing.T, all objects, release, intents string) {
	t.Helper()
	for _, role := range of[*rbacv1.ClusterRole](all) {
		if slices.ContainsFunc(role.Rules, writesConfigMaps) {
			t.Errorf("ClusterRole %s may change ConfigMaps of every namespace", role.Name)
		}
	}
	for _, role := range of[*rbacv1.Role](all) {
		if slices.ContainsFunc(role.Rules, writesConfigMaps) && (role.Namespace != intents || role.Namespace == release) {
			t.Errorf("Role %s may change every ConfigMap of namespace %q", role.Name, role.Namespace)
		}
	}
	for _, object := range all {
		if accessor, ok := object.(interface{ GetNamespace() string }); ok && accessor.GetNamespace() == intents {
			switch object.(type) {
			case *rbacv1.Role, *rbacv1.RoleBinding:
			default:
				t.Errorf("%T is in the namespace of intents, where the controllers may change all ConfigMaps", object)
			}
		}
	}
}

// TestIntents_haveANamespaceThatOutlivesTheRelease: a volume that is being made
// when the release is removed is known by its intent alone.
func TestIntents_haveANamespaceThatOutlivesTheRelease(t *testing.T) {
	for values, want := range map[string]string{
		"{}": "release-holdfast-intents", "{intents: {namespace: volumes}}": "volumes",
		"{intents: {namespace: made-by-hand, createNamespace: false}}": "",
		"{controllers: {provision: false, capacity: false}}":           "",
	} {
		all, got := render(t, values), ""
		for _, namespace := range of[*corev1.Namespace](all) {
			got = namespace.Name
			if namespace.Annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%s: helm uninstall deletes namespace %s with the intents in it", values, got)
			}
		}
		if got != want {
			t.Errorf("%s: the chart makes namespace %q, want %q", values, got, want)
		}
		arguments, _ := controllerArguments(t, all)
		provisions := strings.Contains(arguments["controllers"], "provision")
		if namespace := arguments["intents-namespace"]; (namespace != "") != provisions || want != "" && namespace != want {
			t.Errorf("%s: --intents-namespace=%s", values, namespace)
		}
	}
}

// TestNamespaces_ofTheClusterAreRefused: rights to all ConfigMaps or Leases of
// kube-system are rights to the cluster.
func TestNamespaces_ofTheClusterAreRefused(t *testing.T) {
	for _, c := range []struct{ namespace, values, want string }{
		{"kube-system", "{}", "kube-system"},
		{"kube-public", "{backend: ebs}", "kube-public"},
		{"storage", "{intents: {namespace: kube-system}}", "/intents/namespace"},
		{"storage", "{intents: {namespace: storage}}", "intents.namespace"},
		{"release-holdfast-intents", "{}", "intents.namespace"},
	} {
		_, err := load(t).Render(Options{Release: "release", Namespace: c.namespace, Values: c.values})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s in namespace %s: %v; want an error with %q", c.values, c.namespace, err, c.want)
		}
	}
}

// TestNodeLabel_isCopiedWhereTheAPIServerCanDoIt: an object of a kind that the API server
// does not serve would fail the installation.
func TestNodeLabel_isCopiedWhereTheAPIServerCanDoIt(t *testing.T) {
	for _, c := range []struct {
		values string
		served []string
		want   int
	}{
		{"{}", []string{mutatingPolicies}, 2}, // of claims and of volumes
		{"{}", nil, 0},
		{"{local: {nodeObjectsOnly: false}}", []string{mutatingPolicies}, 0},
		{"{backend: ebs}", []string{mutatingPolicies}, 0},
	} {
		documents, err := load(t).Render(Options{Release: "release", Namespace: "storage", Values: c.values, Served: c.served})
		if err != nil {
			t.Fatal(err)
		}
		policies, bindings := 0, 0
		for _, d := range documents {
			switch d.Kind {
			case "MutatingAdmissionPolicy":
				policies++
			case "MutatingAdmissionPolicyBinding":
				bindings++
			}
		}
		if policies != c.want || bindings != c.want {
			t.Errorf("%s, served %v: %d policies, %d bindings, want %d", c.values, c.served, policies, bindings, c.want)
		}
	}
}

// TestOwnNodePolicies_coverEachKindThatANodeChanges: all nodes have one account,
// so RBAC grants each the objects of all. The same holds for the coordinator. The
// policies' effect is tested on an API server.
func TestOwnNodePolicies_coverEachKindThatANodeChanges(t *testing.T) {
	for name, values := range installations() {
		all := render(t, values)
		if _, central := controllerArguments(t, all); central {
			continue
		}
		accounts := []string{linuxNode(t, all).Spec.Template.Spec.ServiceAccountName}
		if coordinates(all) {
			accounts = append(accounts, one[*appsv1.Deployment](t, all).Spec.Template.Spec.ServiceAccountName)
		}
		covered := map[string]map[string]bool{}
		for _, account := range accounts {
			covered[account] = coveredKinds(t, name, all, account)
		}
		if n := len(of[*admissionv1.ValidatingAdmissionPolicyBinding](all)); n != len(of[*admissionv1.ValidatingAdmissionPolicy](all)) {
			t.Errorf("%s: %d bindings", name, n)
		}
		for account, rules := range rulesOf(all) {
			for _, rule := range rules {
				if !slices.ContainsFunc(rule.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) }) {
					continue
				}
				for _, resource := range rule.Resources {
					if !covered[account][resource] && resource != "events" { // which say who wrote them
						t.Errorf("%s: %s may %v the %s of all nodes", name, account, rule.Verbs, resource)
					}
				}
			}
		}
	}
	if n := len(of[*admissionv1.ValidatingAdmissionPolicy](render(t, "{local: {nodePolicy: false}}"))); n != 0 {
		t.Errorf("%d policies without local.nodePolicy", n)
	}
}

// coveredKinds are the resources whose changes by an account a policy restricts.
func coveredKinds(t *testing.T, name string, all objects, account string) map[string]bool {
	t.Helper()
	covered := map[string]bool{}
	for _, policy := range of[*admissionv1.ValidatingAdmissionPolicy](all) {
		if policy.Spec.MatchConditions[0].Expression != `request.userInfo.username == "system:serviceaccount:storage:`+account+`"` {
			continue
		}
		bound := slices.ContainsFunc(of[*admissionv1.ValidatingAdmissionPolicyBinding](all), func(b *admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return b.Spec.PolicyName == policy.Name && slices.Equal(b.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny})
		})
		if !bound || *policy.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("%s: policy %s is bound: %t; it fails with %s", name, policy.Name, bound, *policy.Spec.FailurePolicy)
		}
		for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
			for _, resource := range rule.Resources {
				covered[resource] = true
			}
		}
	}
	return covered
}

// rulesOf are the rules of all roles by the account that has them.
func rulesOf(all objects) map[string][]rbacv1.PolicyRule {
	roles, rules := map[string][]rbacv1.PolicyRule{}, map[string][]rbacv1.PolicyRule{}
	for _, role := range of[*rbacv1.ClusterRole](all) {
		roles[role.Name] = role.Rules
	}
	for _, role := range of[*rbacv1.Role](all) {
		roles[role.Name] = role.Rules
	}
	for _, binding := range of[*rbacv1.ClusterRoleBinding](all) {
		rules[binding.Subjects[0].Name] = append(rules[binding.Subjects[0].Name], roles[binding.RoleRef.Name]...)
	}
	for _, binding := range of[*rbacv1.RoleBinding](all) {
		rules[binding.Subjects[0].Name] = append(rules[binding.Subjects[0].Name], roles[binding.RoleRef.Name]...)
	}
	return rules
}
