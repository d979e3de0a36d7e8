package rights

// The kinds of work that a node's process does beside a central controller. They
// are no names of --controllers, and Roles does not list them: a node has these
// rights and none of the others.
const (
	Metadata     Role = "metadata"      // which instance, or region, this is (--metadata-sources); a controller's, too
	StartupTaint Role = "startup taint" // taken off when the node can attach volumes
	PreStop      Role = "pre-stop"      // the driver of a drained node outlives its volumes
)

// NodeHalf lists the work of a node's process beside a central controller.
func NodeHalf() []Role { return []Role{Metadata, StartupTaint, PreStop} }

// nodeHalf is the table of that work. RBAC cannot say "this node's own"; for the
// only write the chart has an admission policy that does.
func nodeHalf() []need {
	return []need{
		{role: Metadata, what: "nodes", verbs: live},
		{role: StartupTaint, only: Node, what: "nodes", verbs: cached + " patch"},
		{role: StartupTaint, only: Node, group: storageGroup, what: "csinodes", verbs: cached},
		{role: PreStop, only: Node, what: "nodes", verbs: cached},
		{role: PreStop, only: Node, group: storageGroup, what: "volumeattachments", verbs: cached},
	}
}
