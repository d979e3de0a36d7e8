package rights

// API groups; "" is the core group.
const (
	storageGroup  = "storage.k8s.io"
	snapshotGroup = "snapshot.storage.k8s.io"
	groupsGroup   = "groupsnapshot.storage.k8s.io"
)

// What is kept in a cache is listed and watched; get is for what is read live.
const (
	cached = "list watch"
	live   = "get"
)

// table says which work needs what, and why where that is not plain. Nothing
// here reads pods of others, events, or secrets.
func table() []need {
	return join(
		provision(), attach(), resize(), modify(), snapshot(), groupSnapshot(), health(), own(),
		[]need{{role: Events, what: "events", verbs: "create patch"}},
	)
}

func join(parts ...[]need) (all []need) {
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

func provision() []need {
	const role = Provision
	return []need{
		{role: role, what: "persistentvolumes", verbs: cached + " create patch delete"},
		{role: role, what: "persistentvolumes", verbs: live}, // whose volume an existing one is
		{role: role, what: "persistentvolumeclaims", verbs: cached + " patch"},
		{role: role, what: "persistentvolumeclaims", verbs: live}, // does the claim still exist
		{role: role, group: storageGroup, what: "storageclasses", verbs: cached},
		{role: role, group: storageGroup, what: "volumeattributesclasses", verbs: cached},
		// Sources of claims, which must not go while they are copied.
		{role: role, group: snapshotGroup, what: "volumesnapshots", verbs: cached + " patch"},
		{role: role, group: snapshotGroup, what: "volumesnapshotcontents", verbs: live},
		{role: role, only: Node, group: snapshotGroup, what: "volumesnapshotcontents", verbs: cached}, // which node has a snapshot
		// Topology; nodes that act for themselves take turns at claims that may be
		// anywhere, and so need to know each other.
		{role: role, group: storageGroup, what: "csinodes", verbs: cached},
		{role: role, only: Node, group: storageGroup, what: "csinodes", verbs: live}, // are intents of other nodes served
		{role: role, only: Central, what: "nodes", verbs: cached},
		// Volumes that are attached when they are to be deleted.
		{role: role, only: Central, group: storageGroup, what: "volumeattachments", verbs: cached},
	}
}

func attach() []need {
	const role = Attach
	return []need{
		{role: role, group: storageGroup, what: "volumeattachments", verbs: cached + " patch"},
		{role: role, group: storageGroup, what: "volumeattachments/status", verbs: "patch"},
		{role: role, group: storageGroup, what: "csinodes", verbs: cached},
		{role: role, what: "persistentvolumes", verbs: cached + " patch"},
	}
}

func resize() []need {
	return []need{
		{role: Resize, what: "persistentvolumeclaims", verbs: cached},
		{role: Resize, what: "persistentvolumeclaims", verbs: live}, // after a conflict
		{role: Resize, what: "persistentvolumeclaims/status", verbs: "patch"},
		{role: Resize, what: "persistentvolumes", verbs: cached + " patch"},
		{role: Resize, only: Central, group: storageGroup, what: "volumeattachments", verbs: cached},
	}
}

func modify() []need {
	return []need{
		{role: Modify, what: "persistentvolumeclaims", verbs: cached + " " + live}, // live after a conflict
		{role: Modify, what: "persistentvolumeclaims/status", verbs: "patch"},
		{role: Modify, what: "persistentvolumes", verbs: cached + " patch"},
		// Live when a claim names a class that was made a moment ago.
		{role: Modify, group: storageGroup, what: "volumeattributesclasses", verbs: cached + " " + live},
	}
}

func snapshot() []need {
	return []need{
		{role: Snapshot, group: snapshotGroup, what: "volumesnapshotcontents", verbs: cached + " get patch"},
		{role: Snapshot, group: snapshotGroup, what: "volumesnapshotcontents/status", verbs: "patch"},
		{role: Snapshot, group: snapshotGroup, what: "volumesnapshotclasses", verbs: cached},
		// Which node's volume a content is of.
		{role: Snapshot, only: Node, what: "persistentvolumes", verbs: cached},
	}
}

func groupSnapshot() []need {
	return []need{
		{role: GroupSnapshot, group: groupsGroup, what: "volumegroupsnapshotcontents", verbs: cached + " get patch"},
		{role: GroupSnapshot, group: groupsGroup, what: "volumegroupsnapshotcontents/status", verbs: "patch"},
		{role: GroupSnapshot, group: groupsGroup, what: "volumegroupsnapshotclasses", verbs: cached},
		{role: GroupSnapshot, only: Node, what: "persistentvolumes", verbs: cached},
	}
}

func health() []need {
	return []need{
		{role: Health, what: "persistentvolumeclaims", verbs: cached},
		{role: Health, what: "persistentvolumeclaims/status", verbs: "patch"},
		{role: Health, what: "persistentvolumes", verbs: cached},
	}
}

// own are the rights that end at one namespace, and what finding
// the owner of capacity objects takes.
func own() []need {
	return []need{
		{role: Capacity, group: storageGroup, what: "storageclasses", verbs: cached},
		// Who waits for a class that the driver refuses is told why.
		{role: Capacity, what: "persistentvolumeclaims", verbs: cached},
		{role: Capacity, in: Own, group: storageGroup, what: "csistoragecapacities", verbs: cached + " create update delete"},
		// A node's objects belong to the Node, a controller's to its Deployment.
		{role: Capacity, only: Node, what: "nodes", verbs: live},
		{role: Capacity, only: Central, what: "nodes", verbs: cached},
		{role: Capacity, only: Central, group: storageGroup, what: "csinodes", verbs: cached},
		{role: Capacity, only: Central, in: Own, what: "pods", verbs: live},
		{role: Capacity, only: Central, in: Own, group: "apps", what: "replicasets", verbs: live},

		{role: Lease, only: Central, in: Own, group: "coordination.k8s.io", what: "leases", verbs: "get create update"},
		{role: Intent, in: Intents, what: "configmaps", verbs: "get list create update delete"},
	}
}
