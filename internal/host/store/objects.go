package store

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
)

// Objects is the table of one kind for callers that work with every kind.
type Objects struct {
	tx   *Tx
	kind Kind
}

// Get returns nil if the object does not exist, and an object without its values
// together with ErrSealed.
func (o Objects) Get(key string) (Object, error) {
	data, err := o.tx.get(o.kind.Resource, key)
	if data == nil || err != nil {
		return nil, err
	}
	return o.tx.decodeObject(o.kind, key, data)
}

// Put writes an object, over the one that is there. One that did not change is
// not written.
func (o Objects) Put(key string, object Object) error {
	return o.tx.putObject(o.kind.Resource, key, object)
}

// Delete removes an object; a missing object is not an error.
func (o Objects) Delete(key string) error {
	data, err := o.tx.get(o.kind.Resource, key)
	if data == nil || err != nil {
		return err
	}
	data = bytes.Clone(data)
	if err := o.tx.remove(o.kind.Resource, key); err != nil {
		return err
	}
	version, err := o.tx.next()
	if err != nil {
		return err
	}
	o.tx.changes = append(o.tx.changes, Change{Kind: o.kind, Key: key, Version: version, Data: data, Deleted: true})
	return nil
}

// All returns every object in the order of the keys.
func (o Objects) All() ([]Object, error) {
	var all []Object
	err := o.tx.each(o.kind.Resource, func(key string, data []byte) error {
		object, err := o.tx.decodeObject(o.kind, key, data)
		all = append(all, object)
		return err
	})
	return all, err
}

// next is the version of the next change.
func (t *Tx) next() (uint64, error) {
	version, err := t.tx.Bucket([]byte(metaBucket)).NextSequence()
	if err != nil {
		return 0, fmt.Errorf("number a change: %w", err)
	}
	return version, nil
}

// putObject sets the object's kind and version, and notes the change.
func (t *Tx) putObject(resource, key string, object Object) error {
	kind, known := KindOf(resource)
	if !known {
		return fmt.Errorf("%s is not a kind of object", resource)
	}
	object.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
	before, err := t.get(resource, key)
	if err != nil {
		return err
	}
	if before != nil {
		same, err := t.isSame(kind, key, before, object)
		if err != nil || same {
			return err
		}
	}
	version, err := t.next()
	if err != nil {
		return err
	}
	object.SetResourceVersion(strconv.FormatUint(version, 10))
	data, err := t.encodeObject(kind, key, object)
	if err != nil {
		return err
	}
	if err := t.put(resource, key, data); err != nil {
		return err
	}
	t.changes = append(t.changes, Change{Kind: kind, Key: key, Version: version, Data: data, Created: before == nil})
	return nil
}

// isSame reports whether the object equals the stored one, and sets its version.
func (t *Tx) isSame(kind Kind, key string, stored []byte, object Object) (bool, error) {
	known, err := t.decodeObject(kind, key, stored)
	if errors.Is(err, ErrSealed) {
		return false, nil // the key is lost: the given object replaces the stored one
	}
	if err != nil {
		return false, err
	}
	object.SetResourceVersion(known.GetResourceVersion())
	return equality.Semantic.DeepEqual(known, object), nil
}

func (t *Tx) encodeObject(kind Kind, key string, object Object) ([]byte, error) {
	data, err := t.vault.seal(kind, key, object, func() []string { return t.sealedObjects(kind, key) })
	if err != nil {
		return nil, fmt.Errorf("encode %s %q: %w", kind.Kind, key, err)
	}
	return data, nil
}

func (t *Tx) decodeObject(kind Kind, key string, data []byte) (Object, error) {
	object, err := kind.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", key, err)
	}
	return object, t.vault.unseal(kind.Resource, key, data, object)
}
