//go:build kubernetes

package faults

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
)

// TestLabelNodesPolicy: with the policy of ebs-label-nodes.yaml, the controller's account may
// write the labels of --label-nodes and nothing else of a Node.
func TestLabelNodesPolicy(t *testing.T) {
	t.Parallel()
	const account, role, node = "holdfast-controller", "label-nodes-test", "label-nodes-test"
	w := newNodesWorld(t)
	w.must(w.core.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: localNamespace}}, metav1.CreateOptions{}))
	w.must(w.core.CoreV1().ServiceAccounts(localNamespace).Create(w.ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: account},
	}, metav1.CreateOptions{}))
	// More than the chart grants: the policy is to refuse by itself.
	w.must(w.core.RbacV1().ClusterRoles().Create(w.ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{}))
	w.must(w.core.RbacV1().ClusterRoleBindings().Create(w.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: localNamespace, Name: account}},
	}, metav1.CreateOptions{}))
	w.must(w.core.CoreV1().Nodes().Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: node, Labels: map[string]string{"team": "a", metadata.LabelVolumes: "1"}, Annotations: map[string]string{"a": "b"},
	}, Spec: corev1.NodeSpec{Unschedulable: true}}, metav1.CreateOptions{}))
	installed := installPolicies(w.ctx, t, w.core, shipped(t, "ebs-label-nodes.yaml"), nil, nil, nil)
	if installed.made["ValidatingAdmissionPolicy"] != 1 {
		t.Fatalf("the manifest has %v", installed.made)
	}
	t.Cleanup(installed.remove)

	nodes := w.accountNamed(account, nil).core.CoreV1().Nodes()
	patch := func(text string, subresources ...string) func() error {
		return func() error {
			_, err := nodes.Patch(w.ctx, node, types.MergePatchType, []byte(text), metav1.PatchOptions{DryRun: dry}, subresources...)
			return err
		}
	}
	both := patch(`{"metadata":{"labels":{"` + metadata.LabelInterfaces + `":"3","` + metadata.LabelVolumes + `":"12"}}}`)
	refused := map[string]func() error{
		"another label":       patch(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
		"a label that it has": patch(`{"metadata":{"labels":{"team":"b"}}}`),
		"the end of a label":  patch(`{"metadata":{"labels":{"team":null}}}`),
		"a label as text":     patch(`{"metadata":{"labels":{"` + metadata.LabelInterfaces + `":"x"}}}`),
		"an annotation":       patch(`{"metadata":{"annotations":{"a":"c"}}}`),
		"a finalizer":         patch(`{"metadata":{"finalizers":["example.com/x"]}}`),
		"an owner":            patch(ownedByNone),
		"a taint":             patch(`{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`),
		"a node for pods":     patch(`{"spec":{"unschedulable":null}}`),
		"a label and a taint": patch(`{"metadata":{"labels":{"` + metadata.LabelInterfaces + `":"3"}},"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`),
		"a status":            patch(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "status"),
		"the deletion":        func() error { return nodes.Delete(w.ctx, node, metav1.DeleteOptions{DryRun: dry}) },
		"the creation of a new": func() error {
			_, err := nodes.Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node + "-2"}}, metav1.CreateOptions{DryRun: dry})
			return err
		},
	}
	for deadline := time.Now().Add(testTimeout); refused["a taint"]() == nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the policy does not act")
		}
	}
	if err := both(); err != nil {
		t.Errorf("both labels: %v", err)
	}
	for name, try := range refused {
		if err := try(); err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
