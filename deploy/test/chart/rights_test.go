package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/rights"
)

// granted are the rights in the rules of roles; each must be spelled out.
func granted(t *testing.T, in rights.Namespace, rules []rbacv1.PolicyRule) map[rights.Right]bool {
	t.Helper()
	found := map[rights.Right]bool{}
	for _, rule := range rules {
		if len(rule.NonResourceURLs)+len(rule.ResourceNames) > 0 {
			t.Errorf("rule %v is not about kinds of objects", rule)
		}
		for _, group := range rule.APIGroups {
			for _, what := range rule.Resources {
				for _, verb := range rule.Verbs {
					resource, subresource, _ := strings.Cut(what, "/")
					if strings.Contains(group+what+verb, "*") {
						t.Errorf("rule %v has a wildcard", rule)
					}
					found[rights.Right{Group: group, Resource: resource, Subresource: subresource, Verb: verb, In: in}] = true
				}
			}
		}
	}
	return found
}

// namespaceOf is the meaning of a role's namespace for the controllers.
func namespaceOf(role *rbacv1.Role) rights.Namespace {
	if strings.HasSuffix(role.Namespace, "-intents") {
		return rights.Intents
	}
	return rights.Own
}

// needed are the rights of the roles that a container's arguments turn on.
func needed(arguments map[string]string, central bool) []rights.Right {
	mode, roles := rights.Node, []rights.Role{rights.Events}
	if central {
		mode, roles = rights.Central, append(roles, rights.Lease)
	}
	for name := range strings.SplitSeq(arguments["controllers"], ",") {
		roles = append(roles, rights.Role(name))
	}
	if slices.Contains(roles, rights.Resize) {
		roles = append(roles, rights.Modify)
	}
	if slices.Contains(roles, rights.Provision) {
		roles = append(roles, rights.Intent)
	}
	if arguments["node-objects-only"] == "true" && arguments["leader-election"] != "false" {
		roles = append(roles, rights.Coordinate, rights.Lease)
	}
	if arguments["node-label-policy"] != "" {
		roles = append(roles, rights.LabelPolicy)
	}
	if arguments["enable-capacity"] == "true" {
		roles = append(roles, rights.Capacity)
	}
	if arguments["cross-namespace-sources"] == "true" && slices.Contains(roles, rights.Provision) {
		roles = append(roles, rights.CrossNamespace)
	}
	if central && readsNode(arguments) {
		roles = append(roles, rights.Metadata)
	}
	if arguments["label-nodes"] == "true" {
		roles = append(roles, rights.NodeLabels)
	}
	return rights.Of(mode, roles...)
}

// readsNode reports whether a source of metadata is the Node object.
func readsNode(arguments map[string]string) bool {
	sources := arguments["metadata-sources"]
	return strings.Contains(sources, "kubernetes") || strings.Contains(sources, "metadata-labeler")
}

func TestRoles_grantExactlyTheControllersNeeds(t *testing.T) {
	for name, values := range installations() {
		t.Run(name, func(t *testing.T) {
			all := render(t, values+"\n")
			arguments, central := controllerArguments(t, all)
			got := granted(t, rights.Everywhere, clusterRole(t, all, "release-holdfast.storage").Rules)
			for _, role := range of[*rbacv1.Role](all) {
				if !strings.HasSuffix(role.Name, "-secrets") && !strings.HasSuffix(role.Name, "-coordinator") {
					maps.Copy(got, granted(t, namespaceOf(role), role.Rules))
				}
			}
			if strings.Contains(values, "cluster: true") {
				delete(got, rights.Right{Resource: "secrets", Verb: "get"})
			}
			want := needed(arguments, central)
			for _, right := range want {
				if !got[right] {
					t.Errorf("the chart does not grant %s (namespace %q)", right, right.In)
				}
				delete(got, right)
			}
			for right := range got {
				t.Errorf("the chart grants %s (namespace %q), which nothing needs", right, right.In)
			}
		})
	}
}

// The coordinator may not create or delete anything but events, its lease and, if a policy
// allows it, ConfigMaps without intents.
func TestCoordinatorRoles_grantExactlyItsNeeds(t *testing.T) {
	for name, values := range installations() {
		all := render(t, values)
		got := granted(t, rights.Everywhere, clusterRole(t, all, "release-holdfast-coordinator.storage").Rules)
		for _, role := range of[*rbacv1.Role](all) {
			if strings.HasSuffix(role.Name, "-coordinator") {
				maps.Copy(got, granted(t, namespaceOf(role), role.Rules))
			}
		}
		var roles []rights.Role
		if coordinates(all) {
			roles = []rights.Role{rights.Coordinate, rights.Lease, rights.Events}
			if strings.Contains(values, "crossNamespaceSources: true") {
				roles = append(roles, rights.CrossNamespace)
			}
			if _, given := flags(one[*appsv1.Deployment](t, all).Spec.Template.Spec.Containers[0].Args)["intents-namespace"]; given {
				roles = append(roles, rights.UnservedIntents)
			}
		}
		for _, right := range rights.Of(rights.Central, roles...) {
			if !got[right] {
				t.Errorf("%s: the chart does not grant %s (namespace %q)", name, right, right.In)
			}
			delete(got, right)
		}
		for right := range got {
			t.Errorf("%s: the chart grants %s (namespace %q), which nothing needs", name, right, right.In)
		}
	}
}

// clusterRole is the one of a name.
func clusterRole(t *testing.T, all objects, name string) *rbacv1.ClusterRole {
	t.Helper()
	for _, role := range of[*rbacv1.ClusterRole](all) {
		if role.Name == name {
			return role
		}
	}
	return &rbacv1.ClusterRole{}
}

// TestNodeRole_grantsExactlyTheNodeHalfsNeeds: a disabled part has no rights.
func TestNodeRole_grantsExactlyTheNodeHalfsNeeds(t *testing.T) {
	for name, values := range installations() {
		if !strings.Contains(values, "backend: ebs") {
			continue
		}
		all := render(t, values)
		spec := linuxNode(t, all).Spec.Template.Spec
		arguments := flags(spec.Containers[0].Args)
		var roles []rights.Role
		if readsNode(arguments) {
			roles = append(roles, rights.Metadata)
		}
		if arguments["remove-startup-taint"] == "true" {
			roles = append(roles, rights.StartupTaint)
		}
		if spec.Containers[0].Lifecycle != nil {
			roles = append(roles, rights.PreStop)
		}
		got := granted(t, rights.Everywhere, clusterRole(t, all, "release-holdfast-node.storage").Rules)
		want := rights.Of(rights.Node, roles...)
		for _, right := range want {
			if !got[right] {
				t.Errorf("%s: the chart does not grant %s", name, right)
			}
			delete(got, right)
		}
		if len(got) != 0 {
			t.Errorf("%s: the chart grants %v, which nothing needs", name, got)
		}
		if *spec.AutomountServiceAccountToken != (len(want) > 0) {
			t.Errorf("%s: with the rights %v the pod has a token: %t", name, want, *spec.AutomountServiceAccountToken)
		}
	}
}

// TestNodePolicy_isThereForEachAccountThatMayChangeNodes: a node that an attacker controls
// must not change other nodes, nor the controller more than labels. Tests on an API server
// check that it enforces the policies.
func TestNodePolicy_isThereForEachAccountThatMayChangeNodes(t *testing.T) {
	for name, values := range installations() {
		all := render(t, values)
		if _, central := controllerArguments(t, all); strings.Contains(values, "nodePolicy: false") || !central {
			continue
		}
		var accounts, limited []string
		for account, rules := range rulesOf(all) {
			if granted(t, rights.Everywhere, rules)[rights.Right{Resource: "nodes", Verb: "patch"}] {
				accounts = append(accounts, account)
			}
		}
		for _, policy := range of[*admissionv1.ValidatingAdmissionPolicy](all) {
			_, account, _ := strings.Cut(policy.Spec.MatchConditions[0].Expression, "system:serviceaccount:storage:")
			limited = append(limited, strings.TrimSuffix(account, `"`))
			if !slices.ContainsFunc(of[*admissionv1.ValidatingAdmissionPolicyBinding](all), func(b *admissionv1.ValidatingAdmissionPolicyBinding) bool {
				return b.Spec.PolicyName == policy.Name
			}) {
				t.Errorf("%s: policy %s is not bound", name, policy.Name)
			}
		}
		slices.Sort(accounts)
		slices.Sort(limited)
		if !slices.Equal(accounts, limited) {
			t.Errorf("%s: the accounts %v may change Nodes, and policies limit %v", name, accounts, limited)
		}
	}
}

func TestSidecarRoles_grantExactlyTheControllersNeeds(t *testing.T) {
	all := decode(t, sidecarRoles().Text)
	got := granted(t, rights.Everywhere, one[*rbacv1.ClusterRole](t, all).Rules)
	for _, role := range of[*rbacv1.Role](all) {
		maps.Copy(got, granted(t, namespaceOf(role), role.Rules))
	}
	for _, right := range sidecarRights() {
		if !got[right] {
			t.Errorf("the roles do not grant %s (namespace %q)", right, right.In)
		}
		delete(got, right)
	}
	if len(got) != 0 {
		t.Errorf("the roles grant %v, which nothing needs", got)
	}
}

func TestSecrets_areReadableWhereTheValuesSayOnly(t *testing.T) {
	all := render(t, "rbac: {secrets: {namespaces: [one, two]}}")
	var found []string
	for _, role := range of[*rbacv1.Role](all) {
		for right := range granted(t, rights.Own, role.Rules) {
			if right.Resource == "secrets" {
				found = append(found, fmt.Sprintf("%s %s", role.Namespace, right.Verb))
			}
		}
	}
	slices.Sort(found)
	if !slices.Equal(found, []string{"one get", "two get"}) {
		t.Errorf("secrets are readable in %v", found)
	}
	for right := range granted(t, rights.Everywhere, one[*rbacv1.ClusterRole](t, all).Rules) { // of local
		if right.Resource == "secrets" {
			t.Error("secrets are readable in the whole cluster")
		}
	}
}

// TestBindings_giveRightsToTheControllersAlone: the node half of an attachable
// backend has only its own role.
func TestBindings_giveRightsToTheControllersAlone(t *testing.T) {
	for values, want := range map[string][]string{
		"{backend: local}": {"release-holdfast release-holdfast-node", "release-holdfast-intents release-holdfast-node", "release-holdfast.storage release-holdfast-node"},
		withCoordinator: {
			"release-holdfast release-holdfast-node", "release-holdfast-coordinator release-holdfast-controller",
			"release-holdfast-coordinator.storage release-holdfast-controller", "release-holdfast-intents release-holdfast-node",
			"release-holdfast-intents-coordinator release-holdfast-controller",
			"release-holdfast.storage release-holdfast-node",
		},
		"{backend: ebs}": {
			"release-holdfast release-holdfast-controller", "release-holdfast-intents release-holdfast-controller",
			"release-holdfast-node.storage release-holdfast-node", "release-holdfast.storage release-holdfast-controller",
		},
	} {
		all := render(t, values)
		var got []string
		subjects := func(role string, list []rbacv1.Subject) {
			for _, subject := range list {
				if subject.Kind != "ServiceAccount" || subject.Namespace != "storage" {
					t.Errorf("%s: rights for %+v", values, subject)
				}
				got = append(got, role+" "+subject.Name)
			}
		}
		for _, binding := range of[*rbacv1.ClusterRoleBinding](all) {
			subjects(binding.RoleRef.Name, binding.Subjects)
		}
		for _, binding := range of[*rbacv1.RoleBinding](all) {
			subjects(binding.RoleRef.Name, binding.Subjects)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v; want %v", values, got, want)
		}
	}
}

func TestRBAC_canBeLeftToTheAdministrator(t *testing.T) {
	all := render(t, "rbac: {create: false}")
	if n := len(of[*rbacv1.ClusterRole](all)) + len(of[*rbacv1.Role](all)); n != 0 {
		t.Errorf("%d roles", n)
	}
}
