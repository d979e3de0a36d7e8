package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/rights"
)

// granted are the rights in the rules of roles; each must be spelled out.
func granted(t *testing.T, own bool, rules []rbacv1.PolicyRule) map[rights.Right]bool {
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
					found[rights.Right{Group: group, Resource: resource, Subresource: subresource, Verb: verb, Own: own}] = true
				}
			}
		}
	}
	return found
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
	if arguments["enable-capacity"] == "true" {
		roles = append(roles, rights.Capacity)
	}
	return rights.Of(mode, roles...)
}

func TestRoles_grantWhatTheControllersNeedAndNoMore(t *testing.T) {
	for name, values := range installations() {
		t.Run(name, func(t *testing.T) {
			all := render(t, values+"\n")
			arguments, central := controllerArguments(t, all)
			got := granted(t, false, one[*rbacv1.ClusterRole](t, all).Rules)
			for _, role := range of[*rbacv1.Role](all) {
				if !strings.HasSuffix(role.Name, "-secrets") {
					for right := range granted(t, true, role.Rules) {
						got[right] = true
					}
				}
			}
			if strings.Contains(values, "cluster: true") {
				delete(got, rights.Right{Resource: "secrets", Verb: "get"})
			}
			want := needed(arguments, central)
			for _, right := range want {
				if !got[right] {
					t.Errorf("the chart does not grant %s (own namespace: %t)", right, right.Own)
				}
				delete(got, right)
			}
			for right := range got {
				t.Errorf("the chart grants %s (own namespace: %t), which nothing needs", right, right.Own)
			}
		})
	}
}

func TestSidecarRoles_grantWhatTheControllersNeedAndNoMore(t *testing.T) {
	all := decode(t, sidecarRoles().Text)
	got := granted(t, false, one[*rbacv1.ClusterRole](t, all).Rules)
	maps.Copy(got, granted(t, true, one[*rbacv1.Role](t, all).Rules))
	for _, right := range sidecarRights() {
		if !got[right] {
			t.Errorf("the roles do not grant %s (own namespace: %t)", right, right.Own)
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
		for right := range granted(t, true, role.Rules) {
			if right.Resource == "secrets" {
				found = append(found, fmt.Sprintf("%s %s", role.Namespace, right.Verb))
			}
		}
	}
	slices.Sort(found)
	if !slices.Equal(found, []string{"one get", "two get"}) {
		t.Errorf("secrets are readable in %v", found)
	}
	for right := range granted(t, false, one[*rbacv1.ClusterRole](t, all).Rules) {
		if right.Resource == "secrets" {
			t.Error("secrets are readable in the whole cluster")
		}
	}
}

// TestBindings_giveRightsToTheControllersAlone: the node half of an attachable
// backend has an account without any.
func TestBindings_giveRightsToTheControllersAlone(t *testing.T) {
	for values, account := range map[string]string{
		"{backend: local}": "release-holdfast-node",
		"{backend: ebs}":   "release-holdfast-controller",
	} {
		all := render(t, values)
		var subjects []rbacv1.Subject
		for _, binding := range of[*rbacv1.ClusterRoleBinding](all) {
			subjects = append(subjects, binding.Subjects...)
		}
		for _, binding := range of[*rbacv1.RoleBinding](all) {
			subjects = append(subjects, binding.Subjects...)
		}
		for _, subject := range subjects {
			if subject.Kind != "ServiceAccount" || subject.Name != account || subject.Namespace != "storage" {
				t.Errorf("%s: rights for %+v", values, subject)
			}
		}
		if len(subjects) != 2 {
			t.Errorf("%s: %d bindings; want 2", values, len(subjects))
		}
	}
}

func TestRBAC_canBeLeftToTheAdministrator(t *testing.T) {
	all := render(t, "rbac: {create: false}")
	if n := len(of[*rbacv1.ClusterRole](all)) + len(of[*rbacv1.Role](all)); n != 0 {
		t.Errorf("%d roles", n)
	}
}
