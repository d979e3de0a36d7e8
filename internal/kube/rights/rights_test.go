package rights

import (
	"slices"
	"strings"
	"testing"
)

func TestOf_everyRoleNeedsSomething(t *testing.T) {
	for _, role := range Roles() {
		if len(Of(Central, role))+len(Of(Node, role)) == 0 {
			t.Errorf("%s needs nothing", role)
		}
	}
}

func TestTable_namesKnownRolesAndVerbs(t *testing.T) {
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	for _, row := range table() {
		if !slices.Contains(Roles(), row.role) {
			t.Errorf("row %+v: no such role", row)
		}
		for _, right := range row.rights() {
			if !slices.Contains(verbs, right.Verb) {
				t.Errorf("row %+v: no such verb", row)
			}
		}
	}
}

func TestOf_isSortedAndWithoutDuplicates(t *testing.T) {
	all := Of(Central, Roles()...)
	if !slices.IsSortedFunc(all, compare) || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("%v", all)
	}
}

func TestOf_aNodeWritesNoAttachmentsAndNoLeaseUnlessItMayBeElected(t *testing.T) {
	for _, right := range Of(Node, Provision, Resize, Modify, Snapshot, GroupSnapshot, Health, Capacity, Intent, Events, Coordinate) {
		switch right.Resource {
		case "leases", "volumeattachments", "replicasets", "pods":
			t.Errorf("a node may %s", right)
		}
	}
}

// A ConfigMap may be anything, such as aws-auth: the controllers have rights to
// ConfigMaps only where there are none but theirs.
func TestOf_configMapsAreThoseOfTheNamespaceOfIntents(t *testing.T) {
	for _, mode := range []Mode{Central, Node} {
		for _, right := range Of(mode, append(Roles(), NodeHalf()...)...) {
			if (right.Resource == "configmaps") != (right.In == Intents) {
				t.Errorf("%s is granted in namespace %q", right, right.In)
			}
		}
	}
}

// What an attacker who takes over a node's driver could use against the cluster.
func TestOf_nothingEscalates(t *testing.T) {
	for _, right := range Of(Central, Roles()...) {
		forbidden := right.Resource == "secrets" || right.Resource == "serviceaccounts" || right.Group == "rbac.authorization.k8s.io" ||
			(right.Resource == "pods" && right.Verb != "get") || (right.Resource == "nodes" && !slices.Contains([]string{"get", "list", "watch"}, right.Verb)) ||
			right.Verb == "*" || strings.Contains(right.Resource, "*")
		if forbidden {
			t.Errorf("%s is in the table", right)
		}
	}
}

// A node that is taken over must not reach beyond itself: it writes Nodes alone,
// and the chart's admission policy leaves it its own.
func TestOf_theNodeHalfWritesNodesAlone(t *testing.T) {
	for _, right := range Of(Node, NodeHalf()...) {
		if reads := slices.Contains([]string{"get", "list", "watch"}, right.Verb); !reads && right.String() != "patch nodes" {
			t.Errorf("the node half may %s", right)
		}
	}
	if got := Of(Central, NodeHalf()...); len(got) != 1 || got[0].String() != "get nodes" {
		t.Errorf("a controller has %v; it reads its region from its Node", got)
	}
}

func TestRight_readsLikeKubectl(t *testing.T) {
	for want, right := range map[string]Right{
		"patch persistentvolumeclaims/status":           {Resource: "persistentvolumeclaims", Subresource: "status", Verb: "patch"},
		"get leases.coordination.k8s.io":                {Group: "coordination.k8s.io", Resource: "leases", Verb: "get"},
		"patch volumeattachments.storage.k8s.io/status": {Group: "storage.k8s.io", Resource: "volumeattachments", Subresource: "status", Verb: "patch"},
		"get secrets": {Resource: "secrets", Verb: "get"},
	} {
		if got := right.String(); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}

func TestNeededBy_namesTheRoles(t *testing.T) {
	right := Right{Resource: "persistentvolumeclaims", Subresource: "status", Verb: "patch"}
	if got := NeededBy(right, Node, Provision, Resize, Health); !slices.Equal(got, []Role{Resize, Health}) {
		t.Errorf("%v", got)
	}
}
