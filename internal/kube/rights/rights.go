// Package rights is the table of the RBAC rights that the controllers need. The process
// checks at its start that it has them, and a test compares the chart's roles with the
// table.
package rights

import (
	"cmp"
	"slices"
	"strings"
)

// Role is a kind of work. Those before Capacity are names of --controllers, except
// Modify, which is part of resize.
type Role string

// The kinds of work.
const (
	Provision     Role = "provision"
	Attach        Role = "attach"
	Resize        Role = "resize"
	Modify        Role = "modify"
	Snapshot      Role = "snapshot"
	GroupSnapshot Role = "groupsnapshot"
	Health        Role = "health"

	Capacity Role = "capacity" // CSIStorageCapacity objects for the scheduler
	Lease    Role = "lease"    // the leader election of several replicas
	Intent   Role = "intent"   // intents of the provisioner, in ConfigMaps
	Events   Role = "events"   // events on the users' objects
	// Coordinate is the work of the process that is elected among those of the nodes
	// (--node-objects-only).
	Coordinate Role = "coordinate"
	// UnservedIntents is for the intents of nodes that are gone, which the process reports that
	// coordinates the nodes.
	UnservedIntents Role = "unserved-intents"
	// LabelPolicy reads which admission policy labels objects (--node-label-policy).
	LabelPolicy Role = "label-policy"
	// CrossNamespace is for claims whose source is in another namespace.
	CrossNamespace Role = "cross-namespace"
)

// Roles lists all kinds of work.
func Roles() []Role {
	return []Role{
		Provision, Attach, Resize, Modify, Snapshot, GroupSnapshot, Health,
		Capacity, Lease, Intent, CrossNamespace, Events, Coordinate, UnservedIntents, LabelPolicy,
	}
}

// Mode is how the process is deployed: once for the cluster, or on each node for the
// node's own volumes.
type Mode int

// The modes.
const (
	Central Mode = iota + 1
	Node
)

// Right is one verb on one kind of object.
type Right struct {
	Group       string // "" is the core group
	Resource    string
	Subresource string
	Verb        string
	In          Namespace
}

// Namespace is the scope of a right.
type Namespace string

// The namespaces of rights.
const (
	Everywhere Namespace = ""        // all namespaces, and cluster-scoped objects
	Own        Namespace = "own"     // the process's namespace only
	Intents    Namespace = "intents" // the namespace of intents, which has no other objects
)

// String returns the right in the form of kubectl auth can-i, such as
// "patch persistentvolumeclaims/status".
func (r Right) String() string {
	name := r.Resource
	if r.Group != "" {
		name += "." + r.Group
	}
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	return r.Verb + " " + name
}

// Of returns the rights that roles need in a mode, sorted and without duplicates.
func Of(mode Mode, roles ...Role) []Right {
	var found []Right
	for _, n := range join(table(), nodeHalf()) {
		if slices.Contains(roles, n.role) && (n.only == 0 || n.only == mode) {
			found = append(found, n.rights()...)
		}
	}
	slices.SortFunc(found, compare)
	return slices.Compact(found)
}

// NeededBy returns those of the given roles that need a right in a mode.
func NeededBy(right Right, mode Mode, roles ...Role) []Role {
	var found []Role
	for _, role := range roles {
		if slices.Contains(Of(mode, role), right) {
			found = append(found, role)
		}
	}
	return found
}

// Optional returns rights that no role has, because the controllers work without them:
// to read the secrets of classes, and to list the pods that use a volume which the
// driver refused to expand in use.
func Optional() []Right {
	return []Right{{Resource: "secrets", Verb: "get"}, {Resource: "pods", Verb: "list"}}
}

func compare(a, b Right) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.Subresource, b.Subresource), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.In, b.In))
}

// need is a row of the table.
type need struct {
	role  Role
	only  Mode // 0 is both
	in    Namespace
	group string
	what  string // RESOURCE or RESOURCE/SUBRESOURCE
	verbs string // separated by spaces
}

func (n need) rights() []Right {
	resource, subresource, _ := strings.Cut(n.what, "/")
	var rights []Right
	for verb := range strings.FieldsSeq(n.verbs) {
		rights = append(rights, Right{Group: n.group, Resource: resource, Subresource: subresource, Verb: verb, In: n.in})
	}
	return rights
}
