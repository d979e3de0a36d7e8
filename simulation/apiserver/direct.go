package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	snapshotscheme "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/scheme"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/holdfast-csi/holdfast/internal/claim/grant"
)

// newScheme has all kinds that tests put into an API server.
func newScheme() (*runtime.Scheme, error) {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, snapshotscheme.AddToScheme} {
		if err := add(known); err != nil {
			return nil, err
		}
	}
	known.AddKnownTypes(schema.GroupVersion{Group: grant.Group, Version: "v1"}, &grant.ReferenceGrant{})
	return known, nil
}

// Put stores an object, status and all, regardless of the version of one that exists. It
// keeps a UID and a creation time.
func (s *Server) Put(o runtime.Object) error {
	text, q, err := s.encoded(o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := "ADDED"
	if old, err := s.find(q); err == nil {
		kind = "MODIFIED"
		text.meta()["uid"], text.meta()["creationTimestamp"] = old.meta()["uid"], old.meta()["creationTimestamp"]
	}
	if text.meta().text("uid") == "" {
		text.meta()["uid"] = "uid-" + q.Name
	}
	if text.meta().text("creationTimestamp") == "" {
		text.meta()["creationTimestamp"] = s.now()
	}
	return s.store(q, text, kind)
}

// Remove deletes an object as a client does: it stays while it has finalizers.
func (s *Server) Remove(o runtime.Object) error {
	q, err := s.describe(o)
	if err != nil {
		return err
	}
	q.Verb = "delete"
	_, err = s.answer(q)
	return err
}

// Drop removes an object with its finalizers, as an administrator does by force.
func (s *Server) Drop(o runtime.Object) error {
	q, err := s.describe(o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.find(q)
	if err == nil {
		s.remove(q, old.clone())
	}
	return err
}

// Objects returns the objects of a resource, sorted by namespace and name.
func (s *Server) Objects(group, resource string) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.stored[Request{Group: group, Resource: resource}.collection()]
	var all []map[string]any
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		all = append(all, stored[key])
	}
	return all
}

// describe names the object's kind, namespace and name.
func (s *Server) describe(o runtime.Object) (Request, error) {
	kinds, _, err := s.known.ObjectKinds(o)
	if err != nil {
		return Request{}, fmt.Errorf("%T: %w", o, err)
	}
	named, err := meta.Accessor(o)
	if err != nil {
		return Request{}, fmt.Errorf("%T: %w", o, err)
	}
	kind := kinds[0]
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return Request{
		Group: kind.Group, version: kind.Version, Resource: plural.Resource, Namespace: named.GetNamespace(), Name: named.GetName(),
	}, nil
}

// encoded returns the object as JSON has it, and what describe returns.
func (s *Server) encoded(o runtime.Object) (object, Request, error) {
	q, err := s.describe(o)
	if err != nil {
		return nil, q, err
	}
	text, err := runtime.Encode(codec(s.known, schema.GroupVersion{Group: q.Group, Version: q.version}), o)
	if err != nil {
		return nil, q, fmt.Errorf("%T: %w", o, err)
	}
	decoded, err := decode(text)
	return decoded, q, err
}

// textOf returns the JSON of an answer that is a stored object; nil for others.
func (s *Server) textOf(answer any) []byte {
	o, ok := answer.(object)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.texts[o.version()]
}

// encode returns the JSON of a stored object. The caller holds the lock.
func (s *Server) encode(o object) []byte {
	if text := s.texts[o.version()]; text != nil {
		return text
	}
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // what came from JSON goes to JSON
	}
	return text
}
