package chart

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/kube/rights"
)

const sidecarsHead = `# Made from the rights in code by "make manifests".
# What "holdfast sidecars" needs next to another vendor's driver: all that any of
# its controllers asks for. Rights for what is not used can be left out. They are
# bound to the account of the driver's pod:
#
#   kubectl -n NAMESPACE apply -f sidecars-rbac.yaml
#   kubectl create clusterrolebinding NAME --clusterrole=holdfast-sidecars --serviceaccount=NAMESPACE:ACCOUNT
#   kubectl -n NAMESPACE create rolebinding NAME --role=holdfast-sidecars --serviceaccount=NAMESPACE:ACCOUNT
#   kubectl -n holdfast-intents create rolebinding NAME --role=holdfast-sidecars --serviceaccount=NAMESPACE:ACCOUNT
#
# The controllers get --intents-namespace=holdfast-intents. Nothing else belongs into
# that namespace: they may change every ConfigMap in it.
`

// sidecarRights are those of both modes, and those that some drivers need: to
// read the secrets of classes, and to see who uses a volume that cannot be
// expanded in use.
func sidecarRights() (all []rights.Right) {
	for _, right := range slices.Concat(rights.Of(rights.Central, rights.Roles()...), rights.Of(rights.Node, rights.Roles()...), rights.Optional()) {
		if !slices.Contains(all, right) {
			all = append(all, right)
		}
	}
	return all
}

// sidecarRoles is the manifest of the rights of `holdfast sidecars` next to a driver.
func sidecarRoles() Manifest {
	all := sidecarRights()
	return Manifest{Name: "sidecars-rbac.yaml", Text: sidecarsHead + "---\n" + sidecarIntents + "---\n" + role("ClusterRole", all, rights.Everywhere) +
		"---\n" + role("Role", all, rights.Own) + "---\n" + role("Role", all, rights.Intents)}
}

// sidecarIntents is the namespace of their intents.
const sidecarIntents = `apiVersion: v1
kind: Namespace
metadata:
  name: holdfast-intents
  labels:
    pod-security.kubernetes.io/enforce: restricted
`

// role formats a role with the rights of a namespace.
func role(kind string, all []rights.Right, in rights.Namespace) string {
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: rbac.authorization.k8s.io/v1\nkind: %s\nmetadata:\n  name: holdfast-sidecars\n", kind)
	if in == rights.Intents {
		text.WriteString("  namespace: holdfast-intents\n")
	}
	text.WriteString("rules:\n")
	for line := range strings.Lines(rules(all, in)) {
		text.WriteString("  " + line)
	}
	return text.String()
}

// SidecarRules are the rules of the roles in the chart holdfast-sidecars, as files of the
// chart: for one process that acts for the cluster, and for one on each node.
func SidecarRules() (files []Manifest) {
	for name, mode := range map[string]rights.Mode{"central": rights.Central, "node": rights.Node} {
		all := slices.Concat(rights.Of(mode, rights.Roles()...), rights.Optional())
		for in, namespace := range map[string]rights.Namespace{"cluster": rights.Everywhere, "own": rights.Own, "intents": rights.Intents} {
			files = append(files, Manifest{
				Name: name + "-" + in + ".yaml", Text: "# Made from the rights in code by \"make manifests\".\n" + rules(all, namespace),
			})
		}
	}
	return files
}

// rules formats the rights in a namespace as the rules of a role.
func rules(all []rights.Right, in rights.Namespace) string {
	var text strings.Builder
	type kindOf struct{ group, resource string }
	var order []kindOf
	verbs := map[kindOf][]string{}
	for _, right := range all {
		if right.In != in {
			continue
		}
		what := kindOf{right.Group, right.Resource}
		if right.Subresource != "" {
			what.resource += "/" + right.Subresource
		}
		if verbs[what] == nil {
			order = append(order, what)
		}
		if !slices.Contains(verbs[what], right.Verb) {
			verbs[what] = append(verbs[what], right.Verb)
		}
	}
	for _, what := range order {
		slices.Sort(verbs[what])
		fmt.Fprintf(&text, "- apiGroups: [%q]\n  resources: [%s]\n  verbs: [%s]\n", what.group, what.resource, strings.Join(verbs[what], ", "))
	}
	return text.String()
}
