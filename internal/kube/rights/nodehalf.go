package rights

// The kinds of work of a node's process next to a central controller. They are not
// names of --controllers, and Roles does not list them: a node's process has these
// rights only.
const (
	Metadata     Role = "metadata"      // reads the instance or region (--metadata-sources); also in the controller
	StartupTaint Role = "startup taint" // removed when the node can attach volumes
	PreStop      Role = "pre-stop"      // keeps the driver of a drained node until its volumes are detached
)

// NodeLabels is the work of a central process that labels Nodes with facts of their
// machines (--label-nodes). It is not a name of --controllers.
const NodeLabels Role = "node labels"

// NodeHalf lists the work of a node's process next to a central controller.
func NodeHalf() []Role { return []Role{Metadata, StartupTaint, PreStop} }

// nodeHalf is the table of that work. RBAC cannot restrict a right to the process's own
// node. For the only write, the chart has an admission policy that does.
func nodeHalf() []need {
	return []need{
		{role: Metadata, what: "nodes", verbs: live},
		{role: StartupTaint, only: Node, what: "nodes", verbs: cached + " patch"},
		{role: StartupTaint, only: Node, group: storageGroup, what: "csinodes", verbs: cached},
		{role: PreStop, only: Node, what: "nodes", verbs: cached},
		{role: PreStop, only: Node, group: storageGroup, what: "volumeattachments", verbs: cached},
		{role: NodeLabels, only: Central, what: "nodes", verbs: cached + " patch"},
		{role: NodeLabels, only: Central, what: "persistentvolumes", verbs: cached},
	}
}
