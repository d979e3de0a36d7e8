package store

import (
	"encoding/json"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

const (
	classBucket        = "storageclasses"
	claimBucket        = "persistentvolumeclaims"
	volumeBucket       = "persistentvolumes"
	podBucket          = "pods"
	driverBucket       = "csidrivers"
	namespaceBucket    = "namespaces"
	secretBucket       = "secrets"
	configMapBucket    = "configmaps"
	nodeBucket         = "csinodes"
	attachmentBucket   = "volumeattachments"
	snapshotBucket     = "volumesnapshots"
	provisioningBucket = "provisionings"

	attributesClassBucket = "volumeattributesclasses"
	snapshotClassBucket   = "volumesnapshotclasses"
	snapshotContentBucket = "volumesnapshotcontents"

	useBucket = "volumeuses"
)

func buckets() []string {
	names := []string{metaBucket, provisioningBucket, useBucket}
	for _, kind := range Kinds() {
		names = append(names, kind.Resource)
	}
	return names
}

// Tx is one transaction. It ends with the function it was given to.
type Tx struct {
	tx      *bbolt.Tx
	changes []Change
	undo    []written
	vault   *vault
	// plain: the records are of an earlier schema, without checksums.
	plain bool
	// sums are the sums of the tables, set at the first write.
	sums *sums
}

// Version is that of the last change of an object: a list that this
// transaction reads and a Watch from here miss nothing between them.
func (t *Tx) Version() uint64 { return t.tx.Bucket([]byte(metaBucket)).Sequence() }

// Objects has the objects of a kind as they are stored, by key.
func (t *Tx) Objects(kind Kind) Objects { return Objects{tx: t, kind: kind} }

// Classes has the StorageClasses by name.
func (t *Tx) Classes() Table[storagev1.StorageClass] {
	return table[storagev1.StorageClass](t, classBucket)
}

// Claims has the PersistentVolumeClaims by namespace/name.
func (t *Tx) Claims() Table[corev1.PersistentVolumeClaim] {
	return table[corev1.PersistentVolumeClaim](t, claimBucket)
}

// Volumes has the PersistentVolumes by name.
func (t *Tx) Volumes() Table[corev1.PersistentVolume] {
	return table[corev1.PersistentVolume](t, volumeBucket)
}

// Pods has the Pods by namespace/name.
func (t *Tx) Pods() Table[corev1.Pod] { return table[corev1.Pod](t, podBucket) }

// Drivers has the CSIDriver objects by driver name.
func (t *Tx) Drivers() Table[storagev1.CSIDriver] { return table[storagev1.CSIDriver](t, driverBucket) }

// Provisionings has the volumes that are being made, by claim UID.
func (t *Tx) Provisionings() Table[Provisioning] { return table[Provisioning](t, provisioningBucket) }

// Uses has the volumes that are in use on this machine, by unique name.
func (t *Tx) Uses() Table[VolumeUse] { return table[VolumeUse](t, useBucket) }

// Namespaces has the Namespaces by name.
func (t *Tx) Namespaces() Table[corev1.Namespace] {
	return table[corev1.Namespace](t, namespaceBucket)
}

// Secrets has the Secrets by namespace/name.
func (t *Tx) Secrets() Table[corev1.Secret] {
	return table[corev1.Secret](t, secretBucket)
}

// ConfigMaps has the ConfigMaps by namespace/name.
func (t *Tx) ConfigMaps() Table[corev1.ConfigMap] {
	return table[corev1.ConfigMap](t, configMapBucket)
}

// Nodes has the CSINode of this machine by name.
func (t *Tx) Nodes() Table[storagev1.CSINode] {
	return table[storagev1.CSINode](t, nodeBucket)
}

// Attachments has the VolumeAttachments by name.
func (t *Tx) Attachments() Table[storagev1.VolumeAttachment] {
	return table[storagev1.VolumeAttachment](t, attachmentBucket)
}

// AttributesClasses has the VolumeAttributesClasses by name.
func (t *Tx) AttributesClasses() Table[storagev1.VolumeAttributesClass] {
	return table[storagev1.VolumeAttributesClass](t, attributesClassBucket)
}

// Snapshots has the VolumeSnapshots by namespace/name.
func (t *Tx) Snapshots() Table[snapshotv1.VolumeSnapshot] {
	return table[snapshotv1.VolumeSnapshot](t, snapshotBucket)
}

// SnapshotClasses has the VolumeSnapshotClasses by name.
func (t *Tx) SnapshotClasses() Table[snapshotv1.VolumeSnapshotClass] {
	return table[snapshotv1.VolumeSnapshotClass](t, snapshotClassBucket)
}

// SnapshotContents has the VolumeSnapshotContents by name.
func (t *Tx) SnapshotContents() Table[snapshotv1.VolumeSnapshotContent] {
	return table[snapshotv1.VolumeSnapshotContent](t, snapshotContentBucket)
}

// Table is one kind of record, by key, as JSON. Each change of an object gives it a
// new resourceVersion and is sent to the watchers.
type Table[T any] struct {
	tx   *Tx
	kind string
}

func table[T any](t *Tx, name string) Table[T] {
	return Table[T]{tx: t, kind: name}
}

// Get returns nil if the record does not exist.
func (t Table[T]) Get(key string) (*T, error) {
	data, err := t.tx.get(t.kind, key)
	if data == nil || err != nil {
		return nil, err
	}
	return t.decode(key, data)
}

// Put writes a record, over the one that is there. An object that did not
// change is not written.
func (t Table[T]) Put(key string, value *T) error {
	if object, ok := any(value).(Object); ok {
		return t.tx.putObject(t.kind, key, object)
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s %q: %w", t.kind, key, err)
	}
	return t.tx.put(t.kind, key, data)
}

// Delete removes a record; a missing record is not an error.
func (t Table[T]) Delete(key string) error {
	if kind, ok := KindOf(t.kind); ok {
		return t.tx.Objects(kind).Delete(key)
	}
	return t.tx.remove(t.kind, key)
}

// All returns every record in the order of the keys.
func (t Table[T]) All() ([]*T, error) {
	var all []*T
	err := t.tx.each(t.kind, func(key string, data []byte) error {
		value, err := t.decode(key, data)
		all = append(all, value)
		return err
	})
	return all, err
}

func (t Table[T]) decode(key string, data []byte) (*T, error) {
	value := new(T)
	if err := json.Unmarshal(data, value); err != nil {
		return nil, fmt.Errorf("%s %q is damaged: %w", t.kind, key, err)
	}
	return value, t.tx.vault.unseal(t.kind, key, data, value)
}

// Key is the key of a namespaced object.
func Key(namespace, name string) string { return namespace + "/" + name }
