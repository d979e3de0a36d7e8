package store

import (
	"encoding/json"
	"fmt"

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
	provisioningBucket = "provisionings"
	useBucket          = "volumeuses"
)

func buckets() []string {
	return []string{metaBucket, classBucket, claimBucket, volumeBucket, podBucket, driverBucket, provisioningBucket, useBucket}
}

// Tx is one transaction. It ends with the function it was given to.
type Tx struct {
	tx *bbolt.Tx
}

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

// Table is one kind of record, by key, as JSON.
type Table[T any] struct {
	bucket *bbolt.Bucket
	kind   string
}

func table[T any](t *Tx, name string) Table[T] {
	return Table[T]{bucket: t.tx.Bucket([]byte(name)), kind: name}
}

// Get returns nil when there is no such record.
func (t Table[T]) Get(key string) (*T, error) {
	data := t.bucket.Get([]byte(key))
	if data == nil {
		return nil, nil
	}
	return t.decode(key, data)
}

// Put writes a record, over the one that is there.
func (t Table[T]) Put(key string, value *T) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s %q: %w", t.kind, key, err)
	}
	if err := t.bucket.Put([]byte(key), data); err != nil {
		return fmt.Errorf("write %s %q: %w", t.kind, key, err)
	}
	return nil
}

// Delete removes a record; one that is not there is no error.
func (t Table[T]) Delete(key string) error {
	if err := t.bucket.Delete([]byte(key)); err != nil {
		return fmt.Errorf("remove %s %q: %w", t.kind, key, err)
	}
	return nil
}

// All returns every record in the order of the keys.
func (t Table[T]) All() ([]*T, error) {
	var all []*T
	err := t.bucket.ForEach(func(key, data []byte) error {
		value, err := t.decode(string(key), data)
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
	return value, nil
}

// Key is the key of a namespaced object.
func Key(namespace, name string) string { return namespace + "/" + name }
