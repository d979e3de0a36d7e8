package store

import (
	"bytes"

	"github.com/holdfast-csi/holdfast/internal/host/store/pages"
)

// offeredPrefix begins the keys of what the host has once offered by itself: after
// that, a user's deletion of it stands.
const offeredPrefix = "offered/"

// WasOffered reports whether SetOffered was called with this name.
func (t *Tx) WasOffered(name string) bool {
	return t.tx.Bucket([]byte(metaBucket)).Get([]byte(offeredPrefix+name)) != nil
}

// SetOffered records that the host has offered an object of this name.
func (t *Tx) SetOffered(name string) error {
	if t.WasOffered(name) {
		return nil
	}
	key := offeredPrefix + name
	t.undo = append(t.undo, written{bucket: metaBucket, key: key})
	return t.tx.Bucket([]byte(metaBucket)).Put([]byte(key), []byte("true"))
}

// forgetOffered undoes SetOffered.
func (t *Tx) forgetOffered(key string) error {
	return t.tx.Bucket([]byte(metaBucket)).Delete([]byte(key))
}

// keepOffered copies these records to a repaired store, however sure they are: one too
// many hides a class that any manifest can make, one that lacks brings a deleted one back.
func (t *Tx) keepOffered(salvaged *pages.Salvaged) error {
	for _, record := range salvaged.Records {
		name, ok := bytes.CutPrefix(record.Key, []byte(offeredPrefix))
		if !ok || record.Bucket != metaBucket && record.Bucket != "" || string(record.Value) != "true" {
			continue
		}
		if err := t.SetOffered(string(name)); err != nil {
			return err
		}
	}
	return nil
}
