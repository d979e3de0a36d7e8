package lifecycle_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

func expression(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func TestOnlyOn(t *testing.T) {
	const in, notIn = corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn
	zone := corev1.NodeSelectorRequirement{Key: "zone", Operator: in, Values: []string{"a"}}
	for _, row := range []struct {
		name  string
		terms []corev1.NodeSelectorTerm
		want  bool
	}{
		{"one node", []corev1.NodeSelectorTerm{expression("node", in, "n1")}, true},
		{"one node of a zone", []corev1.NodeSelectorTerm{{MatchExpressions: append([]corev1.NodeSelectorRequirement{zone}, expression("node", in, "n1").MatchExpressions...)}}, true},
		{"another node", []corev1.NodeSelectorTerm{expression("node", in, "n2")}, false},
		{"two nodes", []corev1.NodeSelectorTerm{expression("node", in, "n1", "n2")}, false},
		{"an alternative", []corev1.NodeSelectorTerm{expression("node", in, "n1"), expression("node", in, "n2")}, false},
		{"not this node", []corev1.NodeSelectorTerm{expression("node", notIn, "n1")}, false},
		{"a zone with that name", []corev1.NodeSelectorTerm{expression("topology.kubernetes.io/zone", in, "n1")}, false},
		{"a driver's node", []corev1.NodeSelectorTerm{expression("topology.local.holdfast.dev/node", in, "n1")}, true},
		{"an empty term", []corev1.NodeSelectorTerm{{}}, false},
		{"no term", nil, false},
	} {
		pv := volume("pv", "d", "v")
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: row.terms}}
		if got := lifecycle.OnlyOn(pv, "n1"); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
	if lifecycle.OnlyOn(volume("pv", "d", "v"), "n1") {
		t.Error("a volume without affinity is on one node")
	}
}

// TestAbandon_onlyWhatWasToBeDeletedEnds: a volume with a claim, or with the policy
// Retain, keeps its object.
func TestAbandon_onlyWhatWasToBeDeletedEnds(t *testing.T) {
	const remove, retain = corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain
	for _, row := range []struct {
		name        string
		policy      corev1.PersistentVolumeReclaimPolicy
		phase       corev1.PersistentVolumePhase
		deleted     bool
		removed     bool
		ended       bool
		why         string
		unprotected bool
	}{
		{name: "released", policy: remove, phase: corev1.VolumeReleased, removed: true, ended: true},
		{name: "released and deleted", policy: remove, phase: corev1.VolumeReleased, deleted: true, removed: true, ended: true},
		{name: "failed", policy: remove, phase: corev1.VolumeFailed, removed: true, ended: true},
		{name: "bound", policy: remove, phase: corev1.VolumeBound, why: `bound to PersistentVolumeClaim "ns/a": delete the claim`},
		{name: "bound and deleted", policy: remove, phase: corev1.VolumeBound, deleted: true, why: "delete the claim"},
		{name: "retained", policy: retain, phase: corev1.VolumeReleased, removed: true, why: "its policy is Retain"},
		{name: "retained and deleted", policy: retain, phase: corev1.VolumeReleased, deleted: true, removed: true},
		{name: "bound, retained", policy: retain, phase: corev1.VolumeBound, removed: true, why: "delete the claim"},
		{name: "released, without finalizer", policy: remove, phase: corev1.VolumeReleased, removed: true, ended: true, unprotected: true},
	} {
		pv := volume("pv", "d", "v")
		pv.Spec.PersistentVolumeReclaimPolicy, pv.Status.Phase = row.policy, row.phase
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "a"}
		pv.Finalizers = []string{claim.ProvisionerFinalizer}
		if row.unprotected {
			pv.Finalizers = nil
		}
		if row.deleted {
			pv.DeletionTimestamp = &metav1.Time{}
		}
		removed, ended, why := lifecycle.Abandon(pv)
		if removed != row.removed || ended != row.ended || (why == "") != (row.why == "") || !strings.Contains(why, row.why) {
			t.Errorf("%s: remove %v, end %v, %q", row.name, removed, ended, why)
		}
	}
	free := volume("pv", "d", "v")
	free.Spec.PersistentVolumeReclaimPolicy, free.Status.Phase = remove, corev1.VolumeAvailable
	if removed, ended, why := lifecycle.Abandon(free); removed || ended || !strings.Contains(why, "no claim is bound to it") {
		t.Errorf("available: %v, %v, %q", removed, ended, why)
	}
}
