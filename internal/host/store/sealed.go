package store

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/podvalues"
)

// IsSealed reports whether the values of a kind's objects are encrypted in the store.
// Watchers get such an object without its values.
func IsSealed(kind Kind) bool {
	return kind.Resource == secretBucket || kind.Resource == configMapBucket
}

// Values are those of a Secret or a ConfigMap, by kind and namespace/name; nil if there is
// no such object.
func (t *Tx) Values(kind, key string) (map[string][]byte, error) {
	if kind == podvalues.ConfigMap {
		config, err := t.ConfigMaps().Get(key)
		return podvalues.In(config), err
	}
	secret, err := t.Secrets().Get(key)
	return podvalues.In(secret), err
}

// configValues are the values of a ConfigMap.
type configValues struct {
	Data       *map[string]string `json:"data,omitempty"`
	BinaryData *map[string][]byte `json:"binaryData,omitempty"`
}

// valuesIn is where JSON reads and writes the values of an object that are encrypted;
// nil for a kind without them.
func valuesIn(object any) any {
	switch object := object.(type) {
	case *corev1.Secret:
		return &object.Data
	case *corev1.ConfigMap:
		return &configValues{&object.Data, &object.BinaryData}
	}
	return nil
}

// withoutValues is a copy of an object without them; false if it has none.
func withoutValues(object Object) (Object, bool) {
	switch object := object.(type) {
	case *corev1.Secret:
		rest := *object
		rest.Data = nil
		return &rest, len(object.Data) > 0
	case *corev1.ConfigMap:
		rest := *object
		rest.Data, rest.BinaryData = nil, nil
		return &rest, len(object.Data)+len(object.BinaryData) > 0
	}
	return object, false
}

// boundTo is the additional data of the encryption, which binds the values to the
// object's name: of a Secret it is the key alone, which has one slash.
func boundTo(resource, key string) []byte {
	if resource == secretBucket {
		return []byte(key)
	}
	return []byte(resource + "/" + key)
}

// seal returns the stored form of an object: its JSON, with the nonce and the encrypted
// JSON of its values as a field. others names the objects that are sealed already.
func (v *vault) seal(kind Kind, key string, object Object, others func() []string) ([]byte, error) {
	rest, has := withoutValues(object)
	stored, err := json.Marshal(rest)
	if err != nil || !has {
		return stored, err
	}
	values, err := json.Marshal(valuesIn(object))
	if err != nil {
		return nil, err
	}
	aead, err := v.open(others)
	if err != nil {
		return nil, err
	}
	sealed, err := json.Marshal(aead.Seal(nil, nil, values, boundTo(kind.Resource, key)))
	return slices.Concat(stored[:len(stored)-1], []byte(`,"sealed":`), sealed, []byte("}")), err
}

// unseal fills in the values of an object that was read.
func (v *vault) unseal(resource, key string, stored []byte, object any) error {
	values := valuesIn(object)
	if values == nil {
		return nil
	}
	sealed, err := sealedIn(stored)
	if err != nil || len(sealed) == 0 {
		return err
	}
	kind, _ := KindOf(resource)
	aead, err := v.open(nil)
	if err != nil {
		return fmt.Errorf("the %s %q %w: %w", kind.Kind, key, ErrSealed, err)
	}
	data, err := aead.Open(nil, nil, sealed, boundTo(resource, key))
	if err != nil {
		return fmt.Errorf("the %s %q %w with %s: apply it again, or bring back the key: %w", kind.Kind, key, ErrSealed, v.path, err)
	}
	return json.Unmarshal(data, values)
}

// sealedIn is the encrypted part of a stored object, nil if it has none.
func sealedIn(stored []byte) ([]byte, error) {
	var sealed struct {
		Sealed []byte `json:"sealed"`
	}
	err := json.Unmarshal(stored, &sealed)
	return sealed.Sealed, err
}

// sealedObjects names the objects with encrypted values, but one.
func (t *Tx) sealedObjects(but Kind, exceptKey string) (names []string) {
	for _, kind := range Kinds() {
		bucket := t.tx.Bucket([]byte(kind.Resource))
		if !IsSealed(kind) || bucket == nil {
			continue
		}
		_ = bucket.ForEach(func(key, stored []byte) error { // the function never fails
			if kind.Resource == but.Resource && string(key) == exceptKey {
				return nil
			}
			if data, err := sealedIn(contentOf(stored)); err != nil || len(data) > 0 {
				names = append(names, fmt.Sprintf("%s %q", kind.Kind, key))
			}
			return nil
		})
	}
	return names
}
