package provision

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/claim/grant"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// Sources in other namespaces, as external-provisioner's CrossNamespaceVolumeDataSource
// (KEP-3294) has them.

// grantChanged queues the claims that may have waited for a ReferenceGrant.
func (c *Controller) grantChanged(_, now *grant.ReferenceGrant) {
	if now != nil {
		c.wake(cluster.ClaimByForeignSource(), now.Namespace)
	}
}

// granted returns an error if a claim may not be made of its source.
func (c *Controller) granted(pvc *corev1.PersistentVolumeClaim, source claim.SourceRef) error {
	if source.Kind == claim.SourceNone || source.Namespace == pvc.Namespace {
		return nil
	}
	if c.grants == nil {
		return fmt.Errorf("%s: spec.dataSourceRef.namespace: the source, %s, is in another namespace; "+
			"start the provisioner with --cross-namespace-sources", claim.Describe(pvc), source)
	}
	if !c.grants.HasSynced() {
		return waitFor("%s: the ReferenceGrants of namespace %q, which may allow the source, %s, are not read yet; "+
			"a cluster without Gateway API's CRDs has none", claim.Describe(pvc), source.Namespace, source)
	}
	if err := lifecycle.CheckGrant(pvc, source, c.grants.List()); err != nil {
		return waiting{err}
	}
	return nil
}

// mayUse reports whether a pending claim may be made of its source, as far as is known. A
// claim of another namespace that may not must not keep the source from deletion.
func (c *Controller) mayUse(pvc *corev1.PersistentVolumeClaim) bool {
	if c.grants != nil && !c.grants.HasSynced() {
		return true
	}
	source, err := claim.SourceOf(pvc)
	return err != nil || c.granted(pvc, source) == nil
}
