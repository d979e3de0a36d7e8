package why

import (
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// Objects of the cases below.
const (
	fast = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: d.example
`
	late = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: late}
provisioner: d.example
volumeBindingMode: WaitForFirstConsumer
`
	driver = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: d.example}
spec: {attachRequired: true, volumeLifecycleModes: [Persistent]}
`
	onN1 = `
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {name: n1}
spec: {drivers: [{name: d.example, nodeID: i-1, topologyKeys: [zone], allocatable: {count: 1}}]}
`
	node1 = `
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a}}
status: {conditions: [{type: Ready, status: "True"}]}
`
	pv = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: v}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: fast
  claimRef: {namespace: default, name: data, uid: c1}
  csi: {driver: d.example, volumeHandle: vol-1}
status: {phase: Bound}
`
	app = `
apiVersion: v1
kind: Pod
metadata: {name: app, namespace: default, uid: p1, creationTimestamp: "2026-05-01T11:00:00Z"}
spec:
  nodeName: n1
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
status: {phase: Pending}
`
	podWithoutNode = `
apiVersion: v1
kind: Pod
metadata: {name: app, namespace: default, uid: p1, creationTimestamp: "2026-05-01T11:00:00Z"}
spec:
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
status:
  phase: Pending
  conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "MESSAGE", lastTransitionTime: "2026-05-01T12:00:00Z"}]
`
	bound = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default, uid: c1, annotations: {volume.kubernetes.io/storage-provisioner: d.example}}
spec:
  volumeName: v
  storageClassName: fast
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
status: {phase: Bound, capacity: {storage: 1Gi}}
`
	snap = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: s, namespace: default}
spec: {source: {persistentVolumeClaimName: data}, volumeSnapshotClassName: snapclass}
`
	snapClass = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: snapclass}
driver: d.example
deletionPolicy: Delete
`
	attachment = `
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: a, creationTimestamp: "2026-05-01T12:00:00Z"}
spec: {attacher: d.example, nodeName: n1, source: {persistentVolumeName: v}}
status: {attached: false}
`
)

const onlyOnN9 = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: node, operator: In, values: [n9]}]}]}}\n  "

// claimWith is a pending claim with these fields of its spec.
func claimWith(spec string) string {
	return `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default, uid: c1, creationTimestamp: "2026-05-01T12:00:00Z", annotations: {volume.kubernetes.io/storage-provisioner: d.example}}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
  ` + spec + `
status: {phase: Pending}
`
}

// with replaces a part of an object's text.
func with(text, old, replacement string) string {
	if !strings.Contains(text, old) {
		panic("no " + old + " in " + text)
	}
	return strings.Replace(text, old, replacement, 1)
}

func unscheduled(message string) string { return with(podWithoutNode, "MESSAGE", message) }

// stuckCase is a situation that a user may be stuck in, and the expected answer.
type stuckCase struct {
	name    string
	ask     string
	objects []string
	answer  string // a part of the first finding
	do      string // a part of its advice
	call    string // call:code:attempts
	also    string // a part of another finding
}

func cases() []stuckCase {
	class := "storageClassName: fast"
	mounted := []string{bound, pv, driver, onN1, node1, with(attachment, "attached: false", "attached: true")}
	on := func(more ...string) []string { return append(append([]string{}, mounted...), more...) }
	return []stuckCase{
		// Claims that stay pending.
		{name: "no such claim", ask: "pvc/data", answer: "does not exist", do: "Create the claim"},
		{name: "a class that does not exist", ask: "pvc/data", objects: []string{claimWith("storageClassName: fsat"), fast}, answer: "asks for the class fsat, which does not exist", do: "get storageclasses"},
		{name: "no class and no default", ask: "pvc/data", objects: []string{claimWith("volumeMode: Filesystem"), fast}, answer: "names no class, and there is no default one", do: "is-default-class"},
		{name: "no class, and a default now", ask: "pvc/data", objects: []string{claimWith("volumeMode: Filesystem"), with(fast, "{name: fast}", `{name: fast, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}`)}, answer: "gets the default one, fast"},
		{name: "the driver is not installed", ask: "pvc/data", objects: []string{claimWith(class), fast}, answer: "driver d.example is not installed", do: "Install the driver"},
		{name: "the provisioner does not respond", ask: "pvc/data", objects: []string{claimWith(class), fast, driver, onN1}, answer: "driver d.example has not created the volume", do: "provisioner"},
		{name: "the selected node is gone", ask: "pvc/data", objects: []string{with(claimWith(class), "annotations: {", "annotations: {volume.kubernetes.io/selected-node: n9, "), fast, driver, onN1},
			answer: "node n9, which was selected for the volume of claim data, does not run driver d.example", do: "holdfast abandon-node n9 --driver d.example"},
		{name: "the selected node runs the driver", ask: "pvc/data", objects: []string{with(claimWith(class), "annotations: {", "annotations: {volume.kubernetes.io/selected-node: n1, "), fast, driver, onN1},
			answer: "driver d.example has not created the volume", do: "provisioner"},
		{name: "the provisioner was not asked", ask: "pvc/data", objects: []string{with(claimWith(class), ", annotations: {volume.kubernetes.io/storage-provisioner: d.example}", ""), fast, driver, onN1}, answer: "driver d.example has not been asked", do: "kube-controller-manager"},
		{name: "no space", ask: "pvc/data", objects: []string{claimWith(class), fast, driver, warning("PersistentVolumeClaim", "data", "ProvisioningFailed", `failed to provision volume with StorageClass "fast": rpc error: code = ResourceExhausted desc = pool is full`, 14)},
			answer: "the volume of the claim data cannot be created", do: "Free space", call: "CreateVolume:ResourceExhausted:14"},
		{name: "a parameter that the driver rejects", ask: "pvc/data", objects: []string{claimWith(class), fast, driver, warning("PersistentVolumeClaim", "data", "ProvisioningFailed", `driver d.example: CreateVolume pvc-c1: InvalidArgument: unknown parameter "tpye"`, 3)},
			answer: "cannot be created", do: "correct the parameters", call: "CreateVolume:InvalidArgument:3"},
		{name: "a driver that does not answer", ask: "pvc/data", objects: []string{claimWith(class), fast, driver, warning("PersistentVolumeClaim", "data", "ProvisioningFailed", `failed to provision volume with StorageClass "fast": rpc error: code = DeadlineExceeded desc = context deadline exceeded`, 2)},
			answer: "cannot be created", do: "does not answer in time", call: "CreateVolume:DeadlineExceeded:2"},
		{name: "waits for a first consumer", ask: "pvc/data", objects: []string{claimWith("storageClassName: late"), late, driver}, answer: "waits for a pod that uses it", do: "nothing is wrong"},
		{name: "its consumer has no node", ask: "pvc/data", objects: []string{claimWith("storageClassName: late"), late, driver, unscheduled("0/3 nodes are available: 3 node(s) had volume node affinity conflict.")},
			answer: "no node that can run the pod can reach its volume", also: "waits until its pod app has a node"},
		{name: "the provisioner's secret is missing", ask: "pvc/data", objects: []string{claimWith(class), driver, fast + "parameters: {csi.storage.k8s.io/provisioner-secret-name: keys, csi.storage.k8s.io/provisioner-secret-namespace: kube-system}\n"},
			answer: "class fast needs the secret keys in namespace kube-system", do: "Create the secret"},
		{name: "a key of the class that is misspelt", ask: "pvc/data", objects: []string{claimWith(class), driver, fast + "parameters: {csi.storage.k8s.io/fs-type: ext4}\n"}, answer: "the class of the claim data is wrong", do: "create it again"},
		{name: "a secret's template with an annotation that the claim has not", ask: "pvc/data", objects: []string{claimWith(class), driver, fast + "parameters: {csi.storage.k8s.io/provisioner-secret-name: \"${pvc.annotations['team']}\", csi.storage.k8s.io/provisioner-secret-namespace: ns}\n"},
			answer: "a secret of the class of claim data cannot be named", do: "annotation"},
		{name: "its source snapshot does not exist", ask: "pvc/data", objects: []string{claimWith("storageClassName: fast\n  dataSource: {kind: VolumeSnapshot, name: s, apiGroup: snapshot.storage.k8s.io}"), fast, driver}, answer: "VolumeSnapshot s does not exist"},
		{name: "its source claim does not exist", ask: "pvc/data", objects: []string{claimWith("storageClassName: fast\n  dataSource: {kind: PersistentVolumeClaim, name: old}"), fast, driver}, answer: "clone of claim old, which does not exist"},
		{name: "a source of another namespace without a grant", ask: "pvc/data", objects: []string{claimWith("storageClassName: fast\n  dataSourceRef: {kind: PersistentVolumeClaim, name: old, namespace: far}"), fast, driver}, answer: "no ReferenceGrant there lets claims of namespace default use it"},
		{name: "a source of another namespace with a grant", ask: "pvc/data", objects: []string{claimWith("storageClassName: fast\n  dataSourceRef: {kind: PersistentVolumeClaim, name: old, namespace: far}"), fast, driver, "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {name: g, namespace: far}\nspec: {from: [{group: '', kind: PersistentVolumeClaim, namespace: default}], to: [{group: '', kind: PersistentVolumeClaim}]}\n"}, answer: "clone of claim old, which does not exist"},
		{name: "a populator", ask: "pvc/data", objects: []string{claimWith("storageClassName: fast\n  dataSourceRef: {kind: Dump, name: d, apiGroup: x.example}"), fast, driver}, answer: "waits for a volume populator"},
		{name: "an attributes class that does not exist", ask: "pvc/data", objects: []string{claimWith("storageClassName: fast\n  volumeAttributesClassName: gold"), fast, driver}, answer: "asks for the VolumeAttributesClass gold, which does not exist"},
		{name: "no static volume matches", ask: "pvc/data", objects: []string{claimWith("storageClassName: \"\""), with(with(with(pv, "storageClassName: fast", "storageClassName: \"\""), "claimRef: {namespace: default, name: data, uid: c1}", "volumeMode: Block"), "phase: Bound", "phase: Available")},
			answer: "no PersistentVolume matches the claim data"},
		{name: "the volume it names belongs to another claim", ask: "pvc/data", objects: []string{claimWith("storageClassName: fast\n  volumeName: v"), with(pv, "name: data, uid: c1", "name: other, uid: c9")}, answer: "belongs to claim default/other", do: "claimRef"},
		{name: "the volume it names does not exist", ask: "pvc/data", objects: []string{claimWith("storageClassName: fast\n  volumeName: v")}, answer: "volume v, which does not exist"},
		{name: "the volume it names is too small", ask: "pvc/data", objects: []string{claimWith("storageClassName: fast\n  volumeName: v"), with(pv, "storage: 1Gi", "storage: 512Mi")}, answer: "it has 512Mi, and the claim wants 1Gi"},
		{name: "a lost claim", ask: "pvc/data", objects: []string{with(bound, "phase: Bound", "phase: Lost")}, answer: "is lost", do: "Restore"},
		{name: "its volume was deleted by hand", ask: "pvc/data", objects: []string{bound}, answer: "bound to volume v, which does not exist"},
		// Claims whose deletion does not end.
		{name: "deleted, and used", ask: "pvc/data", objects: []string{with(bound, "uid: c1", `uid: c1, deletionTimestamp: "2026-05-01T12:00:00Z", finalizers: [kubernetes.io/pvc-protection]`), app}, answer: "pod app still uses it", do: "End the pod", also: "finalizer kubernetes.io/pvc-protection"},
		{name: "deleted, and snapshotted", ask: "pvc/data", objects: []string{with(bound, "uid: c1", `uid: c1, deletionTimestamp: "2026-05-01T12:00:00Z", finalizers: [snapshot.storage.kubernetes.io/pvc-as-source-protection]`)}, answer: "a snapshot of it is being taken"},
		{name: "deleted, with the finalizer of another program", ask: "pvc/data", objects: []string{with(bound, "uid: c1", `uid: c1, deletionTimestamp: "2026-05-01T12:00:00Z", finalizers: [team.example/backup]`)}, answer: "finalizer team.example/backup", do: "the program that sets"},
		// Growing and changing.
		{name: "growing is not allowed", ask: "pvc/data", objects: []string{with(bound, "requests: {storage: 1Gi}", "requests: {storage: 2Gi}"), pv, fast, driver}, answer: "its class fast does not allow it", do: "allowVolumeExpansion"},
		{name: "the driver cannot grow it", ask: "pvc/data", objects: []string{with(with(bound, "requests: {storage: 1Gi}", "requests: {storage: 2Gi}"), "{phase: Bound,", "{phase: Bound, allocatedResourceStatuses: {storage: ControllerResizeInfeasible},"), pv, fast, driver},
			answer: "cannot grow from 1Gi to 2Gi at all", do: "anything above 1Gi"},
		{name: "growing fails", ask: "pvc/data", objects: []string{with(bound, "requests: {storage: 1Gi}", "requests: {storage: 2Gi}"), pv, fast + "allowVolumeExpansion: true\n", driver, warning("PersistentVolumeClaim", "data", "VolumeResizeFailed", `resize volume "v" by resizer "d.example" failed: rpc error: code = Internal desc = oops`, 5)},
			answer: "cannot grow from 1Gi to 2Gi", call: "ControllerExpandVolume:Internal:5"},
		{name: "an in-tree class whose driver has not answered", ask: "pvc/data", objects: []string{with(with(claimWith("storageClassName: late"), "storage-provisioner: d.example", "storage-provisioner: kubernetes.io/aws-ebs, pv.kubernetes.io/migrated-to: d.example"), "annotations: {", "annotations: {volume.kubernetes.io/selected-node: n1, "), with(late, "d.example", "kubernetes.io/aws-ebs"), driver, onN1, node1},
			answer: "driver d.example has not created the volume of claim data yet"},
		{name: "its filesystem waits for a pod", ask: "pvc/data", objects: []string{with(with(bound, "requests: {storage: 1Gi}", "requests: {storage: 2Gi}"), "{phase: Bound,", "{phase: Bound, allocatedResourceStatuses: {storage: NodeResizePending},"), pv, fast, driver},
			answer: "grows when a pod uses it", do: "Run a pod"},
		{name: "attributes that are infeasible", ask: "pvc/data", objects: []string{with(with(bound, "volumeName: v", "volumeName: v\n  volumeAttributesClassName: gold"), "{phase: Bound,", "{phase: Bound, modifyVolumeStatus: {targetVolumeAttributesClassName: gold, status: Infeasible},"), pv, driver,
			"apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata: {name: gold}\ndriverName: d.example\n"}, answer: "cannot have the attributes of class gold"},
		{name: "attributes of another driver", ask: "pvc/data", objects: []string{with(bound, "volumeName: v", "volumeName: v\n  volumeAttributesClassName: gold"), pv, driver, "apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata: {name: gold}\ndriverName: e.example\n"},
			answer: "is for driver e.example"},
		// Pods.
		{name: "no such pod", ask: "pod/app", answer: "pod app does not exist"},
		{name: "the pod's claim does not exist", ask: "pod/app", objects: []string{app}, answer: "the claim data in namespace default does not exist"},
		{name: "a scheduling gate", ask: "pod/app", objects: []string{with(app, "nodeName: n1", "schedulingGates: [{name: x.example/wait}]"), bound, pv}, answer: "scheduling gate x.example/wait"},
		{name: "nodes are full of volumes", ask: "pod/app", objects: []string{unscheduled("0/1 nodes are available: 1 node(s) exceed max volume count."), bound, pv}, answer: "as many volumes as their driver allows", do: "Add a node"},
		{name: "no node has the storage", ask: "pod/app", objects: []string{unscheduled("0/1 nodes are available: 1 node(s) did not have enough free storage."), claimWith("storageClassName: late"), late, driver}, answer: "enough free storage"},
		{name: "ReadWriteOncePod in the scheduler's message", ask: "pod/app", objects: []string{unscheduled("1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"), bound, pv}, answer: "another pod uses the pod's ReadWriteOncePod volume"},
		{name: "another pod has the claim for itself", ask: "pod/app", objects: []string{app, with(with(app, "name: app,", "name: other,"), "uid: p1", "uid: p2"), with(bound, "[ReadWriteOnce]", "[ReadWriteOncePod]"), pv, driver, onN1, node1}, answer: "pod other uses it"},
		{name: "the driver is not on the pod's node", ask: "pod/app", objects: []string{app, bound, pv, driver, with(onN1, "name: d.example", "name: e.example"), node1}, answer: "driver d.example is not registered on the pod's node n1", do: "node pod"},
		{name: "no driver is on the pod's node", ask: "pod/app", objects: []string{app, bound, pv, driver, node1}, answer: "no driver at all is registered on the pod's node n1"},
		{name: "the volume is in another zone", ask: "pod/app", objects: []string{app, bound, with(pv, "accessModes:", "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [b]}]}]}}\n  accessModes:"), driver, onN1, node1}, answer: "cannot be reached from the pod's node n1"},
		{name: "attached to another node", ask: "pod/app", objects: []string{app, bound, pv, driver, onN1, node1, with(with(attachment, "nodeName: n1", "nodeName: n2"), "attached: false", "attached: true")}, answer: "attached to node n2, and may be attached to one node only", do: "out-of-service"},
		{name: "attaching fails", ask: "pod/app", objects: []string{app, bound, pv, driver, onN1, node1, with(attachment, "{attached: false}", `{attached: false, attachError: {time: "2026-05-01T12:00:00Z", message: "no such instance", errorCode: 5}}`)},
			answer: "cannot be attached to node n1", call: "ControllerPublishVolume:NotFound:0"},
		{name: "attaching a migrated volume fails", ask: "pod/app", objects: []string{app, bound, with(with(pv, "{name: v}", "{name: v, annotations: {pv.kubernetes.io/migrated-to: d.example}}"), "csi: {driver: d.example, volumeHandle: vol-1}", "awsElasticBlockStore: {volumeID: vol-1}"), driver, onN1, node1, with(attachment, "{attached: false}", `{attached: false, attachError: {time: "2026-05-01T12:00:00Z", message: "no such instance", errorCode: 5}}`)},
			answer: "cannot be attached to node n1", call: "ControllerPublishVolume:NotFound:0"},
		{name: "the attacher does not respond", ask: "pod/app", objects: []string{app, bound, pv, driver, onN1, node1, attachment}, answer: "the driver's attacher has not responded", do: "attacher"},
		{name: "detaching fails", ask: "pod/app", objects: []string{app, bound, pv, driver, onN1, node1, with(with(attachment, "{name: a,", `{name: a, deletionTimestamp: "2026-05-01T12:00:00Z",`), "{attached: false}", `{attached: true, detachError: {time: "2026-05-01T12:00:00Z", message: "rpc error: code = Internal desc = busy"}}`)},
			answer: "cannot be detached from node n1", call: "ControllerUnpublishVolume:Internal:0"},
		{name: "the node has as many volumes as it can", ask: "pod/app", objects: []string{app, bound, pv, driver, onN1, node1, with(with(with(attachment, "name: a,", "name: b,"), "persistentVolumeName: v", "persistentVolumeName: w"), "attached: false", "attached: true")},
			answer: "node n1 has 1 volumes of driver d.example attached"},
		{name: "a stage that fails", ask: "pod/app", objects: on(app, warning("Pod", "app", "FailedMount", `MountVolume.MountDevice failed for volume "v" : rpc error: code = Internal desc = mkfs failed`, 7)), answer: "cannot be mounted on its node", call: "NodeStageVolume:Internal:7"},
		{name: "a publish that fails", ask: "pod/app", objects: on(app, warning("Pod", "app", "FailedMount", `MountVolume.SetUp failed for volume "v" : rpc error: code = InvalidArgument desc = bad option`, 2)), answer: "cannot be mounted on its node", call: "NodePublishVolume:InvalidArgument:2"},
		{name: "a kubelet without the driver", ask: "pod/app", objects: on(app, warning("Pod", "app", "FailedMount", `MountVolume.MountDevice failed for volume "v" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name d.example not found in the list of registered CSI drivers`, 2)), answer: "the driver is not registered on the pod's node n1"},
		{name: "a multi-attach error", ask: "pod/app", objects: on(app, warning("Pod", "app", "FailedAttachVolume", `Multi-Attach error for volume "v" Volume is already exclusively attached to one node and can't be attached to another`, 1)), answer: "the volume is attached to another node"},
		{name: "a block volume that cannot be mapped", ask: "pod/app", objects: on(app, warning("Pod", "app", "FailedMapVolume", `MapVolume.SetUpDevice failed for volume "v" : rpc error: code = NotFound desc = gone`, 4)), answer: "cannot be mapped", call: "NodeStageVolume:NotFound:4"},
		{name: "an inline volume without a driver", ask: "pod/app", objects: []string{with(app, "persistentVolumeClaim: {claimName: data}", "csi: {driver: d.example}"), onN1}, answer: "has no CSIDriver object"},
		{name: "an inline volume of a driver that has none", ask: "pod/app", objects: []string{with(app, "persistentVolumeClaim: {claimName: data}", "csi: {driver: d.example}"), driver, onN1}, answer: "does not support inline volumes"},
		{name: "an inline volume's secret", ask: "pod/app", objects: []string{with(app, "persistentVolumeClaim: {claimName: data}", "csi: {driver: d.example, nodePublishSecretRef: {name: token}}"), with(driver, "[Persistent]", "[Ephemeral]"), onN1}, answer: "needs the secret token in namespace default"},
		{name: "an ephemeral volume's name is taken", ask: "pod/app", objects: []string{with(app, "persistentVolumeClaim: {claimName: data}", "ephemeral: {volumeClaimTemplate: {spec: {}}}"), with(bound, "name: data", "name: app-data")}, answer: "a claim of that name exists that is not the pod's"},
		{name: "an ephemeral volume's claim was not created", ask: "pod/app", objects: []string{with(app, "persistentVolumeClaim: {claimName: data}", "ephemeral: {volumeClaimTemplate: {spec: {}}}"), warning("Pod", "app", "FailedCreate", "exceeded quota: storage", 3)}, answer: "the claim app-data of the pod's ephemeral volume data does not exist yet", do: "ResourceQuota"},
		{name: "a mounted Secret that does not exist", ask: "pod/app", objects: []string{with(app, "persistentVolumeClaim: {claimName: data}", "secret: {secretName: tls}")}, answer: "needs the secret tls"},
		{name: "a mounted ConfigMap that does not exist", ask: "pod/app", objects: []string{with(app, "persistentVolumeClaim: {claimName: data}", "configMap: {name: conf}")}, answer: "needs the ConfigMap conf"},
		{name: "a projected Secret that does not exist", ask: "pod/app", objects: []string{with(app, "persistentVolumeClaim: {claimName: data}", "projected: {sources: [{configMap: {name: conf, optional: true}}, {secret: {name: tls}}]}")}, answer: "needs the secret tls"},
		{name: "a pod that remains because its node is off", ask: "pod/app", objects: []string{with(app, "uid: p1,", `uid: p1, deletionTimestamp: "2026-05-01T12:00:00Z",`), with(node1, `"True"`, "Unknown")}, answer: "node n1 does not answer", do: "out-of-service"},
		{name: "a pod that remains because of its volume", ask: "pod/app", objects: []string{with(app, "uid: p1,", `uid: p1, deletionTimestamp: "2026-05-01T12:00:00Z",`), node1, warning("Pod", "app", "FailedUnMount", `UnmountVolume.TearDown failed for volume "v" : rpc error: code = Internal desc = busy`, 9)}, answer: "cannot be unmounted", call: "NodeUnpublishVolume:Internal:9"},
		// Volumes.
		{name: "no such volume", ask: "pv/v", answer: "PersistentVolume v does not exist"},
		{name: "no such handle", ask: "volume/vol-9", objects: []string{pv}, answer: "handle vol-9", do: "ListVolumes"},
		{name: "released and kept", ask: "pv/v", objects: []string{with(with(pv, "phase: Bound", "phase: Released"), "accessModes:", "persistentVolumeReclaimPolicy: Retain\n  accessModes:"), driver}, answer: "is kept (Retain)", do: "claimRef"},
		{name: "released on a node that is gone", ask: "pv/v", objects: []string{with(with(pv, "phase: Bound", "phase: Released"), "accessModes:", onlyOnN9+"persistentVolumeReclaimPolicy: Delete\n  accessModes:"), driver}, answer: "is on node n9, which does not exist any more", do: "holdfast abandon-node n9 --driver d.example"},
		{name: "bound on a node that is gone", ask: "pv/v", objects: []string{with(pv, "accessModes:", onlyOnN9+"accessModes:"), driver, bound}, answer: "is on node n9, which does not exist any more", do: "delete the pods and claims"},
		{name: "a volume that cannot be deleted", ask: "volume/vol-1", objects: []string{with(with(pv, "phase: Bound", "phase: Released"), "accessModes:", "persistentVolumeReclaimPolicy: Delete\n  accessModes:"), driver, warning("PersistentVolume", "v", "VolumeFailedDelete", "rpc error: code = FailedPrecondition desc = volume has snapshots", 6)}, answer: "cannot be deleted", call: "DeleteVolume:FailedPrecondition:6"},
		{name: "deleted, and attached", ask: "pv/v", objects: []string{with(with(pv, "phase: Bound", "phase: Released"), "{name: v}", `{name: v, deletionTimestamp: "2026-05-01T12:00:00Z", finalizers: [external-attacher/d-example]}`), driver, with(attachment, "attached: false", "attached: true")}, answer: "still attached to node n1", also: "the driver's attacher"},
		{name: "deleted, and bound", ask: "pv/v", objects: []string{with(pv, "{name: v}", `{name: v, deletionTimestamp: "2026-05-01T12:00:00Z", finalizers: [kubernetes.io/pv-protection]}`), driver}, answer: "claim default/data is bound to it"},
		// Snapshots.
		{name: "a snapshot of nothing", ask: "snapshot/s", objects: []string{snap, snapClass}, answer: "claim data, which does not exist"},
		{name: "a snapshot of a pending claim", ask: "snapshot/s", objects: []string{snap, snapClass, claimWith(class), fast}, answer: "driver d.example is not installed", also: "not bound yet"},
		{name: "a snapshot class that does not exist", ask: "snapshot/s", objects: []string{snap, bound, pv}, answer: "asks for the class snapclass, which does not exist"},
		{name: "a snapshot class of another driver", ask: "snapshot/s", objects: []string{snap, bound, pv, with(snapClass, "d.example", "e.example")}, answer: "is for driver e.example"},
		{name: "no snapshot class and no default", ask: "snapshot/s", objects: []string{with(snap, ", volumeSnapshotClassName: snapclass", ""), bound, pv, snapClass}, answer: "no default one for driver d.example"},
		{name: "no snapshot controller", ask: "snapshot/s", objects: []string{snap, bound, pv, snapClass}, answer: "the snapshot controller has not begun", do: "snapshot controller"},
		{name: "taking the snapshot fails", ask: "snapshot/s", objects: []string{snap + "status: {error: {time: \"2026-05-01T12:00:00Z\", message: \"Failed to check and update snapshot content: rpc error: code = ResourceExhausted desc = full\"}}\n", bound, pv, snapClass}, answer: "the snapshot s cannot be taken", call: "CreateSnapshot:ResourceExhausted:0"},
		{name: "a snapshot that is uploaded", ask: "snapshot/s", objects: []string{snap + "status: {boundVolumeSnapshotContentName: c, readyToUse: false}\n", bound, pv, snapClass, `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotContent
metadata: {name: c}
spec: {driver: d.example, deletionPolicy: Delete, source: {volumeHandle: vol-1}, volumeSnapshotRef: {name: s, namespace: default}}
status: {snapshotHandle: snap-1, creationTime: 1777636800000000000, readyToUse: false}
`}, answer: "is taken, and the driver has not finished it", do: "Wait"},
		{name: "a snapshot whose content is being deleted", ask: "snapshot/s", objects: []string{snap + "status: {boundVolumeSnapshotContentName: c, readyToUse: false}\n", bound, pv, snapClass, `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotContent
metadata: {name: c, deletionTimestamp: "2026-05-01T12:00:00Z", finalizers: [snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection]}
spec: {driver: d.example, deletionPolicy: Delete, source: {volumeHandle: vol-1}, volumeSnapshotRef: {name: s, namespace: default}}
`}, answer: "the content c of snapshot s is being deleted", do: "Delete the snapshot"},
		{name: "a snapshot with a finalizer", ask: "snapshot/s", objects: []string{with(snap, "namespace: default}", `namespace: default, deletionTimestamp: "2026-05-01T12:00:00Z", finalizers: [snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection]}`)}, answer: "until claims are restored from it"},
	}
}

func TestAsk_namesTheCauseAndTheAction(t *testing.T) {
	if len(cases()) < 40 {
		t.Fatalf("there are only %d cases", len(cases()))
	}
	for _, c := range cases() {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) { c.check(t) })
	}
}

func (c stuckCase) check(t *testing.T) {
	subject, err := ParseSubject(c.ask, "default")
	if err != nil {
		t.Fatal(err)
	}
	report, err := Ask(t.Context(), read(t, c.objects...), subject)
	if err != nil || len(report.Findings) == 0 {
		t.Fatalf("no finding: %+v, %v", report, err)
	}
	f := report.Findings[0]
	if !strings.Contains(f.What, c.answer) || !strings.Contains(f.Do, c.do) {
		t.Errorf("the answer is %q, to do: %q\nwant %q, to do: %q\nall: %+v", f.What, f.Do, c.answer, c.do, report.Findings)
	}
	if f.Do == "" {
		t.Errorf("no advice for %q", f.What)
	}
	if got := strings.Join([]string{f.Call, f.Code, number(f.Attempts)}, ":"); c.call != "" && got != c.call {
		t.Errorf("the call is %s, want %s", got, c.call)
	}
	if c.call != "" && !f.Since.Equal(began) {
		t.Errorf("since %v, want %v", f.Since, began)
	}
	for _, other := range report.Findings[1:] {
		if c.also != "" && strings.Contains(other.What, c.also) {
			return
		}
	}
	if c.also != "" {
		t.Errorf("no finding says %q: %+v", c.also, report.Findings)
	}
}

func number(n int) string {
	text := ""
	for ; n > 9; n /= 10 {
		text = string(rune('0'+n%10)) + text
	}
	return string(rune('0'+n)) + text
}

func TestAsk_reportsFineWithoutFindings(t *testing.T) {
	attached := with(attachment, "attached: false", "attached: true")
	for name, c := range map[string]struct {
		ask, want string
		objects   []string
	}{
		"a bound claim":     {"pvc/data", "bound to volume v", []string{bound, pv, driver, onN1, attached}},
		"a running pod":     {"pod/app", "the pod runs", []string{with(app, "phase: Pending", "phase: Running"), bound, pv}},
		"a pod that ended":  {"pod/app", "has ended (Succeeded)", []string{with(app, "phase: Pending", "phase: Succeeded")}},
		"a ready snapshot":  {"snapshot/s", "ready to use", []string{snap + "status: {readyToUse: true}\n"}},
		"a volume in use":   {"volume/vol-1", "bound to volume v", []string{bound, pv, driver, onN1, attached}},
		"a pod's old event": {"pod/app", "none of its volumes keeps it from running", []string{app, bound, pv, driver, onN1, node1, attached, with(warning("Pod", "app", "FailedMount", "rpc error: code = Internal desc = x", 1), "name: app\n  namespace", "name: app\n  uid: gone\n  namespace")}},
	} {
		subject, err := ParseSubject(c.ask, "default")
		if err != nil {
			t.Fatal(err)
		}
		if report, err := Ask(t.Context(), read(t, c.objects...), subject); err != nil || len(report.Findings) > 0 || !strings.Contains(report.Answer(), c.want) {
			t.Errorf("%s: got %q, %+v, %v; want %q", name, report.Answer(), report.Findings, err, c.want)
		}
	}
}

func TestAsk_onAHost(t *testing.T) {
	calls := map[string][]Call{"PersistentVolumeClaim default/data": {{Step: "create", Code: "ResourceExhausted", Error: "driver d.example: CreateVolume pvc-c1: ResourceExhausted: pool is full", Attempts: 4, Since: began}}}
	for name, c := range map[string]struct {
		host    memoryHost
		answer  string
		attempt int
	}{
		"a call that fails":                 {memoryHost{memoryReader: read(t, claimWith("storageClassName: late"), late, driver, with(app, "nodeName: n1", "hostNetwork: true")), calls: calls, registered: []string{"d.example"}}, `the step "create"`, 4},
		"a driver that is not registered":   {memoryHost{memoryReader: read(t, claimWith("storageClassName: fast"), fast), registered: []string{"e.example"}}, "driver d.example is not registered with this host (e.example is)", 0},
		"a claim without a consumer":        {memoryHost{memoryReader: read(t, claimWith("storageClassName: late"), late), registered: []string{"d.example"}}, "waits for a pod that uses it", 0},
		"a claim that is being provisioned": {memoryHost{memoryReader: read(t, claimWith("storageClassName: fast"), fast), registered: []string{"d.example"}, calls: map[string][]Call{"PersistentVolumeClaim default/data": {{Step: "create", Running: true, Since: began}}}}, "has not ended yet", 0},
		"a claim that no step is for":       {memoryHost{memoryReader: read(t, claimWith("storageClassName: fast"), fast), registered: []string{"d.example"}}, "has not created the volume", 0},
	} {
		report, err := Ask(t.Context(), c.host, Subject{Kind: "pvc", Namespace: "default", Name: "data"})
		if err != nil || len(report.Findings) == 0 || !strings.Contains(report.Answer(), c.answer) || report.Findings[0].Attempts != c.attempt {
			t.Errorf("%s: got %+v, %v; want %q", name, report, err, c.answer)
		}
		if report.Fine != "" {
			t.Errorf("%s: a report with findings has a text for fine: %q", name, report.Fine)
		}
	}
}

func TestKind_pathsAreOfOneObject(t *testing.T) {
	if got, want := claims.Path("a b", "x?y/z"), "/api/v1/namespaces/a%20b/persistentvolumeclaims/x%3Fy%2Fz"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAsk_notesObjectsThatItMayNotRead(t *testing.T) {
	w := read(t, app, bound, pv, driver, onN1, node1)
	w.denied = attachments
	report, err := Ask(t.Context(), w, Subject{Kind: "pod", Namespace: "default", Name: "app"})
	if err != nil || len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "volumeattachments") {
		t.Errorf("got %+v, %v", report, err)
	}
}

// A volume or snapshot is on a lost node only if its node is named and does not exist.
func TestAsk_callsNoOtherNodeLost(t *testing.T) {
	released := with(with(pv, "phase: Bound", "phase: Released"), "accessModes:", onlyOnN9+"persistentVolumeReclaimPolicy: Delete\n  accessModes:")
	deletedSnap := with(snap, "namespace: default}", `namespace: default, deletionTimestamp: "2026-05-01T12:00:00Z", finalizers: [a.example/b]}`) +
		"status: {boundVolumeSnapshotContentName: c}\n"
	hashed := `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotContent
metadata: {name: c, deletionTimestamp: "2026-05-01T12:00:00Z", finalizers: [a.example/b], labels: {snapshot.storage.kubernetes.io/managed-by: ` +
		claim.NodeLabelValue(strings.Repeat("n", 64)) + `}}
spec: {driver: d.example, deletionPolicy: Delete, source: {volumeHandle: vol-1}, volumeSnapshotRef: {name: s, namespace: default}}
`
	for name, c := range map[string]struct {
		ask     string
		objects []string
	}{
		"a zone without nodes":                {"pv/v", []string{with(released, "key: node", "key: topology.example/zone"), driver}},
		"a node whose driver has not started": {"pv/v", []string{released, driver, "apiVersion: v1\nkind: Node\nmetadata: {name: n9}\n"}},
		"a hash of a name":                    {"snapshot/s", []string{deletedSnap, hashed, driver}},
	} {
		subject, err := ParseSubject(c.ask, "default")
		if err != nil {
			t.Fatal(err)
		}
		report, err := Ask(t.Context(), read(t, c.objects...), subject)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			if strings.Contains(f.What+f.Do, "abandon-node") || strings.Contains(f.What, "does not exist any more") {
				t.Errorf("%s: %q, %q", name, f.What, f.Do)
			}
		}
	}
}

// An object that may not be read may exist: it must not be reported as missing.
func TestAsk_doesNotReportUnreadableObjectsAsMissing(t *testing.T) {
	missing := regexp.MustCompile("not exist|there is no|no driver at all|is gone|not installed|no PersistentVolume|has not been asked|no VolumeAttachment|no longer exists|no CSIDriver")
	attached := with(attachment, "attached: false", "attached: true")
	gold := "apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata: {name: gold}\ndriverName: d.example\n"
	for _, c := range []struct {
		ask     string
		kinds   []Kind
		objects []string
	}{
		{"pod/app", []Kind{pods, claims, volumes, drivers, csiNodes, nodes, attachments}, []string{app, bound, pv, driver, onN1, node1, attached}},
		{"pod/app", []Kind{claims, classes, drivers, csiNodes, pods}, []string{app, claimWith("storageClassName: fast"), fast, driver, onN1, node1}},
		{"pvc/data", []Kind{claims, classes, drivers, csiNodes}, []string{claimWith("storageClassName: fast"), fast, onN1}},
		{"pvc/data", []Kind{classes}, []string{claimWith("volumeMode: Filesystem"), fast}},
		{"pvc/data", []Kind{volumes}, []string{claimWith("volumeName: v"), pv}},
		{"pvc/data", []Kind{attributes}, []string{claimWith("storageClassName: fast\n  volumeAttributesClassName: gold"), fast, driver, gold}},
		{"pv/v", []Kind{volumes, claims}, []string{bound, pv, driver}},
		{"volume/vol-1", []Kind{volumes, pods}, []string{bound, pv, driver}},
		{"snapshot/s", []Kind{snapshots, claims, volumes, snapshotKinds, contents}, []string{snap, bound, pv, driver, snapClass}},
	} {
		for _, denied := range c.kinds {
			subject, err := ParseSubject(c.ask, "default")
			if err != nil {
				t.Fatal(err)
			}
			w := read(t, c.objects...)
			w.denied = denied
			report, err := Ask(t.Context(), w, subject)
			if err != nil {
				t.Errorf("%s without %s: %v", c.ask, denied, err)
			}
			for _, f := range report.Findings {
				if missing.MatchString(f.What) {
					t.Errorf("%s without %s: it reports %q", c.ask, denied, f.What)
				}
			}
		}
	}
	w := read(t, app)
	w.denied = pods
	if report, err := Ask(t.Context(), w, Subject{Kind: "pod", Namespace: "default", Name: "app"}); err != nil || !strings.Contains(report.Answer(), "is unknown, because objects may not be read") {
		t.Errorf("got %q, %v", report.Answer(), err)
	}
}

func TestParseSubject(t *testing.T) {
	for text, want := range map[string]Subject{
		"pvc/data": {"pvc", "ns", "data"}, "PersistentVolumeClaim/data": {"pvc", "ns", "data"}, "pvc/other/data": {"pvc", "other", "data"},
		"pod/app": {"pod", "ns", "app"}, "pv/v": {"pv", "ns", "v"}, "volume/a/b": {"volume", "ns", "a/b"}, "vs/s": {"snapshot", "ns", "s"},
	} {
		if got, err := ParseSubject(text, "ns"); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, wrong := range []string{"", "data", "pvc/", "node/n1", "pvc/..", "pvc/../data", "pod/.", "pod/a/b/c", "pv/a/b", "pvc//x"} {
		if got, err := ParseSubject(wrong, "ns"); err == nil {
			t.Errorf("%q is parsed as %v", wrong, got)
		}
	}
}

func TestFailure_countsEventsOfOneReasonTogether(t *testing.T) {
	later := with(with(warning("Pod", "app", "FailedMount", "rpc error: code = Aborted desc = two", 3), "2026-05-01T12:00:00Z", "2026-05-01T12:30:00Z"), "2026-05-01T13:00:00Z", "2026-05-01T14:00:00Z")
	w := read(t, app, bound, pv, driver, onN1, node1, warning("Pod", "app", "FailedMount", "one", 2), later)
	report, err := Ask(t.Context(), w, Subject{Kind: "pod", Namespace: "default", Name: "app"})
	if err != nil || len(report.Findings) == 0 {
		t.Fatalf("got %+v, %v", report, err)
	}
	if f := report.Findings[0]; f.Attempts != 5 || f.Code != "Aborted" || !f.Since.Equal(began) {
		t.Errorf("got %+v", f)
	}
}
