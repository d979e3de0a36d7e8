package defects

// Files of the controllers with node deployment.
const (
	scopes    = "internal/kube/cluster/scope.go"
	owners    = "internal/kube/cluster/owner.go"
	ownNodes  = "internal/kube/provision/node.go"
	liveReads = "internal/kube/provision/live.go"
	places    = "internal/kube/coordinate/place.go"
	labelling = "internal/kube/coordinate/label.go"
)

// Nodes are defects of the Kubernetes door with node deployment.
func Nodes() []Defect {
	return []Defect{
		planted("nodes-any-node", scopes,
			"a node's process acts on the volumes of all nodes",
			"	if s.Central() {\n		return true\n	}\n	affinity", "	if s.Central() || defect(\"nodes-any-node\") {\n		return true\n	}\n	affinity"),
		planted("nodes-unplaced-volume", owners,
			"a node's process takes a volume without an affinity for its own without asking its driver",
			"	if !e.Scope.Unplaced(volume) {\n", "	if defect(\"nodes-unplaced-volume\") && e.Scope.Unplaced(volume) {\n		return true, nil\n	}\n	if !e.Scope.Unplaced(volume) {\n"),
		planted("nodes-intent-survives", ownNodes,
			"a node gives a claim back before the intent is durably removed",
			"c.intents.Stored(uid) {\n		if err := c.intents.RemoveNow", "c.intents.Stored(uid) && !defect(\"nodes-intent-survives\") {\n		if err := c.intents.RemoveNow"),
		planted("nodes-twin-unwatched", liveReads,
			"a volume is deleted although a PersistentVolume that the process does not watch names it",
			"	if c.unlabelled == nil {\n		return \"\", nil\n", "	if c.unlabelled == nil || defect(\"nodes-twin-unwatched\") {\n		return \"\", nil\n"),
		planted("nodes-selection-unguarded", places,
			"the coordinating process selects a node for a claim that has changed meanwhile (Sieve: stale state)",
			"	if err := c.hit(\"select/before\")", "	if defect(\"nodes-selection-unguarded\") {\n		ops = ops[1:]\n	}\n	if err := c.hit(\"select/before\")"),
		planted("nodes-label-is-final", labelling,
			"the label of a PersistentVolume is not corrected",
			"	if !known || labelled && current == value {\n", "	if !known || labelled && (current == value || defect(\"nodes-label-is-final\")) {\n"),
	}
}
