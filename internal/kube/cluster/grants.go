package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/claim/grant"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// Grants reports by the ReferenceGrants of the cluster which sources in other namespaces a
// claim may be made of, as external-provisioner's CrossNamespaceVolumeDataSource (KEP-3294)
// does. A nil Grants allows none (--cross-namespace-sources=false).
type Grants struct {
	set     *Set
	objects *Store[*grant.ReferenceGrant]
}

// Grants caches the ReferenceGrants. changed gets the namespace of each one that is new, has
// changed or was deleted.
func (s *Set) Grants(changed func(namespace string)) *Grants {
	g := &Grants{s, s.ReferenceGrants()}
	g.objects.OnChange(func(old, now *grant.ReferenceGrant) {
		if now == nil {
			now = old
		}
		changed(now.Namespace)
	})
	return g
}

// HasSynced reports whether the ReferenceGrants are in the cache.
func (g *Grants) HasSynced() bool { return g.objects.HasSynced() }

// Check returns an error if a claim may not be made of its source, as far as is known. The
// error does not reveal whether the source exists.
func (g *Grants) Check(pvc *corev1.PersistentVolumeClaim, source claim.SourceRef) error {
	switch {
	case source.Kind == claim.SourceNone || source.Namespace == pvc.Namespace:
		return nil
	case g == nil:
		return fmt.Errorf("%s: spec.dataSourceRef.namespace: the source, %s, is in another namespace; "+
			"start the provisioner with --cross-namespace-sources", claim.Describe(pvc), source)
	case !g.HasSynced():
		return fmt.Errorf("%s: the ReferenceGrants of namespace %q, which may allow the source, %s, are not read yet; "+
			"a cluster without Gateway API's CRDs has none", claim.Describe(pvc), source.Namespace, source)
	}
	return lifecycle.CheckGrant(pvc, source, g.objects.List())
}

// MayUse reports whether a pending claim may be made of its source, as far as is known. A
// claim of another namespace that may not must not keep the source from deletion.
func (g *Grants) MayUse(pvc *corev1.PersistentVolumeClaim) bool {
	if g != nil && !g.HasSynced() && !g.set.Lacks(grant.Group) {
		return true
	}
	source, err := claim.SourceOf(pvc)
	return err != nil || g.Check(pvc, source) == nil
}
