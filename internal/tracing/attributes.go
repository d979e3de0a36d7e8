package tracing

import "go.opentelemetry.io/otel/attribute"

// Attributes of spans. Those of Kubernetes have the names of OpenTelemetry's semantic
// conventions; those of CSI, which they lack, are named after the fields. No attribute has a
// secret or a value of a context or of parameters.

// Driver is the name of a CSI driver.
func Driver(name string) attribute.KeyValue { return attribute.String("csi.driver.name", name) }

// VolumeID is the volume_id of a CSI call.
func VolumeID(id string) attribute.KeyValue { return attribute.String("csi.volume.id", id) }

// SnapshotID is the snapshot_id of a CSI call.
func SnapshotID(id string) attribute.KeyValue { return attribute.String("csi.snapshot.id", id) }

// Subject is the ID of the object of a CSI call, or the name of what it creates.
func Subject(id string) attribute.KeyValue { return attribute.String("csi.subject", id) }

// Claim describes a PersistentVolumeClaim.
func Claim(namespace, name, uid string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("k8s.namespace.name", namespace),
		attribute.String("k8s.persistentvolumeclaim.name", name), attribute.String("k8s.persistentvolumeclaim.uid", uid),
	}
}

// Pod describes a Pod.
func Pod(namespace, name, uid string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("k8s.namespace.name", namespace), attribute.String("k8s.pod.name", name), attribute.String("k8s.pod.uid", uid),
	}
}

// Volume is the name of a PersistentVolume.
func Volume(name string) attribute.KeyValue {
	return attribute.String("k8s.persistentvolume.name", name)
}

// Class is the name of a StorageClass.
func Class(name string) attribute.KeyValue { return attribute.String("k8s.storageclass.name", name) }

// Node is the name of a Node.
func Node(name string) attribute.KeyValue { return attribute.String("k8s.node.name", name) }
