// Package rights is the list of what the controllers ask of the API server:
// one table for the process, which checks at its start that it may do what it
// is going to do, and for the chart, whose roles a test compares with it.
package rights

import (
	"cmp"
	"slices"
	"strings"
)

// Role is a kind of work. Those before Capacity are names of --controllers, but
// for Modify, which is done by the controller that resizes.
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

	Capacity Role = "capacity" // objects that tell the scheduler where there is room
	Lease    Role = "lease"    // one of several replicas works
	Intent   Role = "intent"   // records of volumes that are being made
	Events   Role = "events"   // what users see of all of this
)

// Roles lists all kinds of work.
func Roles() []Role {
	return []Role{Provision, Attach, Resize, Modify, Snapshot, GroupSnapshot, Health, Capacity, Lease, Intent, Events}
}

// Mode is how the process is deployed: once for the cluster, or on each node
// for what belongs to the node.
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

// Namespace is where a right holds.
type Namespace string

// The namespaces of rights.
const (
	Everywhere Namespace = ""        // all namespaces, or objects that have none
	Own        Namespace = "own"     // the process's own namespace alone
	Intents    Namespace = "intents" // the namespace of intents, which holds nothing else
)

// String is the right as kubectl auth can-i takes it, such as
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

// Of are the rights that roles need in a mode, sorted and without repetition.
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

// NeededBy are the roles, of those given, that need a right in a mode.
func NeededBy(right Right, mode Mode, roles ...Role) []Role {
	var found []Role
	for _, role := range roles {
		if slices.Contains(Of(mode, role), right) {
			found = append(found, role)
		}
	}
	return found
}

// Optional are rights that are in no role, since the work goes on without them:
// to read the secrets that classes name, and to see which pods use a volume
// that a driver refused to expand in use.
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
