package why

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// lostNode reports that the only node of a volume does not exist any more.
func (w *walk) lostNode(pv *corev1.PersistentVolume) {
	name := onlyNode(pv)
	if name == "" || w.onHost {
		return
	}
	known := list[corev1.Node](w, nodes, "", "")
	if w.unreadable[nodes] || slices.ContainsFunc(known, func(node corev1.Node) bool {
		return node.Name == name || claim.FitsNode(pv.Spec.NodeAffinity, node.Name, node.Labels)
	}) {
		return
	}
	deleted := pv.DeletionTimestamp != nil || pv.Status.Phase != corev1.VolumeBound
	w.goneWith("the volume "+pv.Name, name, pv.Spec.CSI.Driver, deleted, evidence(volumes, "", pv.Name, "spec.nodeAffinity"))
}

// onlyNode returns the topology value by which a volume's affinity names a node, "" if
// the affinity allows several.
func onlyNode(pv *corev1.PersistentVolume) string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if len(e.Values) == 1 && lifecycle.OnlyOn(pv, e.Values[0]) {
				return e.Values[0]
			}
		}
	}
	return ""
}

// lostManager returns the node that a label of a content names and that does not exist
// any more. "" also stands for a node whose label has a hash of its name.
func (w *walk) lostManager(label string) string {
	if label == claim.AnyNode || w.onHost || claim.NodeLabelHashed(label) {
		return ""
	}
	if w.exists(nodes, "", label) {
		return ""
	}
	return label
}

// goneWith reports what a node that does not exist has; deleted reports that its user has
// deleted it.
func (w *walk) goneWith(what, node, driver string, deleted bool, from string) {
	command := fmt.Sprintf("'holdfast abandon-node %s --driver %s'", node, driver)
	do := "Start the node again. If it never comes back, the data on its disk is lost: delete the pods and claims that use it, then run " + command + "."
	if deleted {
		do = "Only that node can delete it. Start it again, or, if it never comes back, run " + command + "."
	}
	w.add(cause, Finding{
		What: fmt.Sprintf("%s is on node %s, which does not exist any more", what, node), Evidence: []string{from}, Do: do,
	})
}
