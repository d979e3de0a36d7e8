package lifecycle

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// NamesNode reports whether the values of a topology key are of single nodes, such as
// topology.local.holdfast.dev/node. Those of other keys, such as zones, can be of nodes
// that do not exist yet.
func NamesNode(key string) bool {
	return slices.Contains([]string{"node", "nodename", "node-name", "nodeid", "node-id", "hostname", "host"},
		key[strings.LastIndexByte(key, '/')+1:])
}

// OnlyOn reports whether a PersistentVolume can be used on one node only, which its
// affinity names by a topology value: each alternative requires that value.
func OnlyOn(pv *corev1.PersistentVolume, node string) bool {
	affinity := pv.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) == 0 {
		return false
	}
	return !slices.ContainsFunc(affinity.Required.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return NamesNode(e.Key) && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 && e.Values[0] == node
		})
	})
}

// TermOn reports whether a topology is that of one node, which it names.
func TermOn(term claim.Term, node string) bool {
	return slices.ContainsFunc(term, func(s claim.Segment) bool { return NamesNode(s.Key) && s.Value == node })
}

// Abandon decides about a PersistentVolume whose node was lost for good. remove reports
// that its finalizer is to be removed, and end that the object is to be deleted, too: its
// claim was deleted under the policy Delete, so that the volume would have been deleted.
// why says what an object that stays waits for.
func Abandon(pv *corev1.PersistentVolume) (remove, end bool, why string) {
	due, deleting := ReclaimDue(pv), pv.DeletionTimestamp != nil
	deletes := pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	remove = due == DueRelease // or its deletion would wait for ever
	switch {
	case due == DueDelete, deletes && pv.Status.Phase == corev1.VolumeFailed:
		return true, true, ""
	case pv.Status.Phase == corev1.VolumeBound && pv.Spec.ClaimRef != nil:
		return remove, false, fmt.Sprintf("it is bound to PersistentVolumeClaim %q: delete the claim, then repeat this command",
			pv.Spec.ClaimRef.Namespace+"/"+pv.Spec.ClaimRef.Name)
	case deleting:
		return true, false, ""
	case !deletes:
		return remove, false, "its policy is Retain: delete it when its record is not needed any more"
	}
	return false, false, "no claim is bound to it: delete it if it is not needed"
}
