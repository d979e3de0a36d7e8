package apiserver

import (
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
	text, q, err := s.describe(o)
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
	s.store(q, text, kind)
	return nil
}

// Remove deletes an object as a client does: it stays while it has finalizers.
func (s *Server) Remove(o runtime.Object) error {
	_, q, err := s.describe(o)
	if err != nil {
		return err
	}
	q.Verb = "delete"
	_, err = s.answer(q)
	return err
}

// Drop removes an object with its finalizers, as an administrator does by force.
func (s *Server) Drop(o runtime.Object) error {
	_, q, err := s.describe(o)
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
func (s *Server) describe(o runtime.Object) (object, Request, error) {
	kinds, _, err := s.known.ObjectKinds(o)
	if err != nil {
		return nil, Request{}, fmt.Errorf("%T: %w", o, err)
	}
	kind := kinds[0]
	text, err := runtime.Encode(codec(s.known, kind.GroupVersion()), o)
	if err != nil {
		return nil, Request{}, fmt.Errorf("%T: %w", o, err)
	}
	decoded, err := decode(text)
	if err != nil {
		return nil, Request{}, err
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	q := Request{Group: kind.Group, version: kind.Version, Resource: plural.Resource, Namespace: decoded.namespace(), Name: decoded.name()}
	return decoded, q, nil
}
