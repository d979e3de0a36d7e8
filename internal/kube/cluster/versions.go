package cluster

import (
	"context"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/internal/claim/grant"
)

// olderVersion is an older version of a kind, with the same fields.
type olderVersion struct {
	schema.GroupVersion
	use func() // makes the store list and watch this version; called before its start
}

// useOlder reports whether the cluster serves the older version of a kind, if that has
// one. The store then uses that version.
func (s *Set) useOlder(ctx context.Context, resource schema.GroupVersionResource) bool {
	s.mu.Lock()
	older, known := s.older[resource]
	s.mu.Unlock()
	if !known {
		return false
	}
	served, err := s.served(ctx, older.GroupVersion)
	if err != nil {
		s.logger.WarnContext(ctx, "cannot read which kinds the API server serves", "group", older.Group, "error", err)
	}
	if served[resource.Resource] {
		older.use()
	}
	return served[resource.Resource]
}

// eitherVersion lists and watches the newer of two versions of a kind, or the older one
// if that is set.
type eitherVersion[L runtime.Object] struct {
	newer, older lister[L]
	useOlder     atomic.Bool
}

func (e *eitherVersion[L]) used() lister[L] {
	if e.useOlder.Load() {
		return e.older
	}
	return e.newer
}

func (e *eitherVersion[L]) List(ctx context.Context, options metav1.ListOptions) (L, error) {
	return e.used().List(ctx, options)
}

func (e *eitherVersion[L]) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return e.used().Watch(ctx, options)
}

// ReferenceGrants are Gateway API's grants, in the newest version that the cluster serves.
func (s *Set) ReferenceGrants() *Store[*grant.ReferenceGrant] {
	resource := schema.GroupVersionResource{Group: grant.Group, Version: "v1", Resource: "referencegrants"}
	return kept(s, resource, func() *Store[*grant.ReferenceGrant] {
		gateway := s.clients.Gateway
		grants := &eitherVersion[*grant.ReferenceGrantList]{
			newer: gateway.GatewayV1().ReferenceGrants(metav1.NamespaceAll),
			older: gateway.GatewayV1beta1().ReferenceGrants(metav1.NamespaceAll),
		}
		s.older[resource] = olderVersion{
			schema.GroupVersion{Group: grant.Group, Version: "v1beta1"}, func() { grants.useOlder.Store(true) },
		}
		return newStore("ReferenceGrant", &grant.ReferenceGrant{}, gateway, grants, chosen{}, s.logger)
	})
}
