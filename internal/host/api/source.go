package api

import (
	"context"
	"encoding/json"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// source is where the objects of a kind come from.
type source interface {
	// get returns nil if the object does not exist.
	get(desired filter) (store.Object, error)
	list(desired filter) ([]store.Object, uint64, error)
	// follow returns a function that waits for the next changes after a version.
	follow(version uint64) func(context.Context) ([]change, error)
}

// change is an object that came, changed or went.
type change struct {
	verb   watch.EventType
	key    string
	object store.Object
}

func (s *Server) source(kind store.Kind) source {
	if kind.Resource == "events" {
		return events{journal: s.options.Journal}
	}
	return tables{store: s.options.Store, kind: kind}
}

// tables are the objects in the store.
type tables struct {
	store *store.Store
	kind  store.Kind
}

func (t tables) get(desired filter) (store.Object, error) {
	key := desired.name
	if t.kind.Namespaced {
		key = store.Key(desired.namespace, desired.name)
	}
	var object store.Object
	err := t.store.View(func(tx *store.Tx) (err error) {
		object, err = tx.Objects(t.kind).Get(key)
		return err
	})
	if err != nil || object == nil || !desired.matches(object) {
		return nil, err
	}
	return redacted(object), nil
}

func (t tables) list(desired filter) ([]store.Object, uint64, error) {
	items := []store.Object{}
	var version uint64
	err := t.store.View(func(tx *store.Tx) error {
		version = tx.Version()
		all, err := tx.Objects(t.kind).All()
		for _, object := range all {
			if object != nil && desired.matches(object) {
				items = append(items, redacted(object))
			}
		}
		return err
	})
	return items, version, err
}

func (t tables) follow(version uint64) func(context.Context) ([]change, error) {
	watching := t.store.Watch(version)
	return func(ctx context.Context) ([]change, error) {
		for {
			all, err := watching.Next(ctx)
			if err != nil {
				return nil, err
			}
			var found []change
			for _, one := range all {
				if one.Kind.Resource != t.kind.Resource {
					continue
				}
				decoded, err := t.decode(one)
				if err != nil {
					return nil, err
				}
				found = append(found, decoded)
			}
			if len(found) > 0 {
				return found, nil
			}
		}
	}
}

func (t tables) decode(from store.Change) (change, error) {
	object, err := from.Object()
	if err != nil {
		return change{}, err
	}
	if object, err = t.named(from, object); err != nil {
		return change{}, err
	}
	decoded := change{verb: watch.Modified, key: from.Key, object: redacted(object)}
	switch {
	case from.Deleted:
		// A client that continues from here must not see the deletion again.
		object.SetResourceVersion(strconv.FormatUint(from.Version, 10))
		decoded.verb = watch.Deleted
	case from.Created:
		decoded.verb = watch.Added
	}
	return decoded, nil
}

// named is a Secret or a ConfigMap with its values, which a change does not have, as long
// as it is the newest of that object.
func (t tables) named(from store.Change, object store.Object) (store.Object, error) {
	if !store.IsSealed(t.kind) || from.Deleted {
		return object, nil
	}
	err := t.store.View(func(tx *store.Tx) error {
		current, err := tx.Objects(t.kind).Get(from.Key)
		if err == nil && current != nil && current.GetResourceVersion() == object.GetResourceVersion() {
			object = current
		}
		return err
	})
	return object, err
}

// frame is one line of a watch.
type frame struct {
	Type   watch.EventType `json:"type"`
	Object runtime.Object  `json:"object"`
}

func (c change) line() ([]byte, error) {
	return json.Marshal(frame{Type: c.verb, Object: c.object})
}
