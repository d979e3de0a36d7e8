package manifest

// Meaning says what becomes of a field.
type Meaning int

const (
	// Honoured fields do here what they do on a cluster.
	Honoured Meaning = iota
	// Unused fields have no meaning on one machine; they are reported.
	Unused
	// Silent fields have no meaning either and cause no warning, such as fields that a
	// cluster wrote.
	Silent
	// Refused fields would change what a workload sees, and cannot be honoured.
	Refused
)

// rule is the meaning of one field, with the reason or the way.
type rule struct {
	meaning Meaning
	note    string
}

// contract has the rules of the fields of one kind. A path covers everything
// below it. "[]" means any element of a list. A field of the Kubernetes API
// that is in no rule is refused, and fails a test.
type contract struct {
	rules map[string]rule
	order []string
	// parents are the paths that have a rule somewhere below them.
	parents map[string]bool
}

func (c *contract) set(r rule, prefix string, names ...string) {
	for _, name := range names {
		path := prefix + name
		if _, known := c.rules[path]; !known {
			c.order = append(c.order, path)
		}
		c.rules[path] = r
		for i, char := range path {
			if char == '.' || char == '[' {
				c.parents[path[:i]] = true
			}
		}
	}
}

func (c *contract) honour(prefix string, names ...string) {
	c.set(rule{Honoured, ""}, prefix, names...)
}
func (c *contract) unused(prefix string, names ...string) { c.set(rule{Unused, ""}, prefix, names...) }
func (c *contract) refuse(note, prefix string, names ...string) {
	c.set(rule{Refused, note}, prefix, names...)
}
func (c *contract) note(meaning Meaning, note, prefix string, names ...string) {
	c.set(rule{meaning, note}, prefix, names...)
}

// covers reports whether something below the pattern is listed.
func (c *contract) covers(pattern string) bool { return pattern == "" || c.parents[pattern] }

// newContract begins with what all kinds have.
func newContract() *contract {
	c := &contract{rules: map[string]rule{}, parents: map[string]bool{}}
	c.honour("", "apiVersion", "kind")
	c.honour("metadata.", "name", "namespace", "labels", "annotations")
	c.note(Honoured, "if given, the object that is changed must have it", "metadata.", "uid", "resourceVersion")
	c.note(Honoured, "the finalizers that this host sets may be given", "metadata.", "finalizers")
	c.note(Silent, "set by the host", "metadata.", "generation", "creationTimestamp", "managedFields", "selfLink")
	c.refuse("an object is applied by its name", "metadata.", "generateName")
	c.refuse("`holdfast delete` sets it", "metadata.", "deletionTimestamp", "deletionGracePeriodSeconds")
	c.refuse("objects that belong to others are made by the host", "metadata.", "ownerReferences")
	return c
}

// status is for kinds that have one.
func (c *contract) status() { c.note(Unused, "written by the host", "", "status") }

// contractOf returns what the host does with the fields of a kind.
func contractOf(kind string) *contract {
	c := newContract()
	switch kind {
	case "Namespace":
		c.status()
		c.note(Silent, "a namespace goes when it is empty", "", "spec")
	case "Secret":
		c.honour("", "data", "type", "immutable")
		c.note(Honoured, "merged into `data`, over existing keys", "", "stringData")
	case "ConfigMap":
		c.honour("", "data", "binaryData", "immutable")
	case "CSIDriver":
		driverFields(c)
	case "StorageClass":
		c.honour("", "provisioner", "parameters", "reclaimPolicy", "mountOptions", "allowVolumeExpansion",
			"allowedTopologies", "volumeBindingMode")
	case "VolumeAttributesClass":
		c.honour("", "driverName", "parameters")
	case "VolumeSnapshotClass":
		c.honour("", "driver", "parameters", "deletionPolicy")
	case "VolumeSnapshotContent":
		c.status()
		c.honour("spec.", "driver", "deletionPolicy", "source.volumeHandle", "source.snapshotHandle",
			"volumeSnapshotClassName", "sourceVolumeMode")
		objectReference(c, "spec.volumeSnapshotRef.")
	case "VolumeSnapshot":
		c.status()
		c.honour("spec.", "source.persistentVolumeClaimName", "source.volumeSnapshotContentName", "volumeSnapshotClassName")
	case "PersistentVolume":
		c.status()
		volumeFields(c)
	case "PersistentVolumeClaim":
		c.status()
		claimFields(c, "spec.")
	case "Pod":
		c.status()
		podFields(c)
	}
	return c
}

func driverFields(c *contract) {
	c.honour("spec.", "attachRequired", "podInfoOnMount", "volumeLifecycleModes", "fsGroupPolicy", "requiresRepublish")
	c.note(Honoured, "where this machine has SELinux", "spec.", "seLinuxMount")
	c.note(Honoured, "a node's volume limit is read again at this interval, at most once a minute", "spec.",
		"nodeAllocatableUpdatePeriodSeconds")
	c.note(Unused, "there is one node to choose from", "spec.", "storageCapacity")
	c.note(Unused, "a pod waits for its driver anyway", "spec.", "preventPodSchedulingIfMissing")
	c.refuse("service account tokens are issued by an API server, and this machine has none", "spec.", "tokenRequests",
		"serviceAccountTokenInSecrets")
}

func objectReference(c *contract, prefix string) {
	c.honour(prefix, "namespace", "name", "uid")
	c.note(Silent, "set by the host", prefix, "kind", "apiVersion", "resourceVersion", "fieldPath")
}

func volumeFields(c *contract) {
	c.honour("spec.", "capacity", "accessModes", "persistentVolumeReclaimPolicy", "storageClassName", "mountOptions",
		"volumeMode", "volumeAttributesClassName")
	c.note(Honoured, "compared with the topology that the driver reports for this machine, when a pod uses the volume",
		"spec.", "nodeAffinity")
	objectReference(c, "spec.claimRef.")
	c.honour("spec.csi.", "driver", "volumeHandle", "readOnly", "fsType", "volumeAttributes",
		"controllerPublishSecretRef",
		"nodeStageSecretRef", "nodePublishSecretRef", "controllerExpandSecretRef", "nodeExpandSecretRef")
	c.refuse("only volumes of CSI drivers (`spec.csi`) are served", "spec.", "gcePersistentDisk",
		"awsElasticBlockStore", "hostPath",
		"glusterfs", "nfs", "rbd", "iscsi", "cinder", "cephfs", "fc", "flocker", "flexVolume", "azureFile",
		"vsphereVolume", "quobyte",
		"azureDisk", "photonPersistentDisk", "portworxVolume", "scaleIO", "local", "storageos")
}

func claimFields(c *contract, prefix string) {
	c.honour(prefix, "accessModes", "volumeMode", "volumeName", "volumeAttributesClassName",
		"resources.requests.storage", "resources.limits.storage")
	c.note(Honoured, "`\"\"` asks for a PersistentVolume that exists", prefix, "storageClassName")
	c.note(Honoured, "such a claim waits for a PersistentVolume that matches; none is made", prefix, "selector")
	c.note(Honoured, "a PersistentVolumeClaim or VolumeSnapshot of the same namespace", prefix,
		"dataSource", "dataSourceRef")
	c.refuse("the API knows only storage here", prefix, "resources.requests", "resources.limits")
}
