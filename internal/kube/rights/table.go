package rights

// API groups; "" is the core group.
const (
	admissionGroup = "admissionregistration.k8s.io"
	storageGroup   = "storage.k8s.io"
	snapshotGroup  = "snapshot.storage.k8s.io"
	groupsGroup    = "groupsnapshot.storage.k8s.io"
	gatewayGroup   = "gateway.networking.k8s.io"
)

// Cached kinds need list and watch; kinds that are read live need get.
const (
	cached = "list watch"
	live   = "get"
)

// table lists the rights of each kind of work. No right reads other pods, events or
// secrets.
func table() []need {
	return join(
		provision(), attach(), resize(), modify(), snapshot(), groupSnapshot(), health(), coordinate(), own(),
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
		// The sources of claims, which must not be deleted while they are copied.
		{role: role, group: snapshotGroup, what: "volumesnapshots", verbs: cached + " patch"},
		{role: role, only: Node, group: snapshotGroup, what: "volumesnapshots", verbs: live}, // with --node-objects-only
		{role: role, group: snapshotGroup, what: "volumesnapshotcontents", verbs: live},
		{role: role, only: Node, group: snapshotGroup, what: "volumesnapshotcontents", verbs: cached}, // which node has a snapshot
		// Topology. With node deployment the nodes take turns at claims of immediate
		// binding, for which each lists the others.
		{role: role, group: storageGroup, what: "csinodes", verbs: cached},
		{role: role, only: Node, group: storageGroup, what: "csinodes", verbs: live}, // are intents of other nodes served
		{role: role, only: Central, what: "nodes", verbs: cached},
		// A volume is deleted only when it is not attached.
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
		// Live if a claim names a class that was just created.
		{role: Modify, group: storageGroup, what: "volumeattributesclasses", verbs: cached + " " + live},
	}
}

func snapshot() []need {
	return []need{
		{role: Snapshot, group: snapshotGroup, what: "volumesnapshotcontents", verbs: cached + " get patch"},
		{role: Snapshot, group: snapshotGroup, what: "volumesnapshotcontents/status", verbs: "patch"},
		{role: Snapshot, group: snapshotGroup, what: "volumesnapshotclasses", verbs: cached},
		// The volume of a content, and with it the node.
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

func coordinate() []need {
	const role = Coordinate
	return []need{
		// Labels, selected nodes, and finalizers of sources.
		{role: role, what: "persistentvolumeclaims", verbs: cached + " patch"},
		{role: role, what: "persistentvolumes", verbs: cached + " patch"},
		{role: role, group: snapshotGroup, what: "volumesnapshots", verbs: cached + " patch"},
		{role: role, group: snapshotGroup, what: "volumesnapshotcontents", verbs: cached + " get patch"},
		{role: role, group: groupsGroup, what: "volumegroupsnapshotcontents", verbs: cached + " patch"},
		// The nodes that may be selected.
		{role: role, what: "nodes", verbs: cached + " get"},
		{role: role, group: storageGroup, what: "csinodes", verbs: cached},
		{role: role, group: storageGroup, what: "storageclasses", verbs: cached},
		{role: role, in: Own, group: storageGroup, what: "csistoragecapacities", verbs: cached},
	}
}

// own returns the rights within one namespace, those to find the owner of capacity
// objects, and those of options.
func own() []need {
	return []need{
		{role: Capacity, group: storageGroup, what: "storageclasses", verbs: cached},
		// Pending claims of a class that the driver rejects get an event.
		{role: Capacity, what: "persistentvolumeclaims", verbs: cached},
		{role: Capacity, in: Own, group: storageGroup, what: "csistoragecapacities", verbs: cached + " create update delete"},
		// The Node owns a node's objects, the Deployment those of a central controller.
		{role: Capacity, only: Node, what: "nodes", verbs: live},
		{role: Capacity, only: Central, what: "nodes", verbs: cached},
		{role: Capacity, only: Central, group: storageGroup, what: "csinodes", verbs: cached},
		{role: Capacity, only: Central, in: Own, what: "pods", verbs: live},
		{role: Capacity, only: Central, in: Own, group: "apps", what: "replicasets", verbs: live},

		{role: Lease, in: Own, group: "coordination.k8s.io", what: "leases", verbs: "get create update"},
		{role: CrossNamespace, group: gatewayGroup, what: "referencegrants", verbs: cached},
		{role: LabelPolicy, only: Node, group: admissionGroup, what: "mutatingadmissionpolicies", verbs: live},
		{role: LabelPolicy, only: Node, group: admissionGroup, what: "mutatingadmissionpolicybindings", verbs: live},
		{role: Intent, in: Intents, what: "configmaps", verbs: "get list create update delete"},
		// ConfigMaps without intents are deleted.
		{role: UnservedIntents, in: Intents, what: "configmaps", verbs: "list update delete"},
	}
}
