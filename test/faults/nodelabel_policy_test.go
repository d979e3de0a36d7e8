//go:build kubernetes

package faults

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// TestNodeLabelPolicy_labelsClaims: the policy of local-node-label.yaml labels claims of the driver
// with the node that is selected for them, and leaves every other write as it is.
func TestNodeLabelPolicy_labelsClaims(t *testing.T) {
	t.Parallel()
	core := kubernetes.NewForConfigOrDie(shared)
	installed := installPolicies(t.Context(), t, core, shipped(t, "local-node-label.yaml"), nil, nil, nil)
	if installed.made["MutatingAdmissionPolicy"] != 1 {
		t.Fatalf("the manifest has %v", installed.made)
	}
	t.Cleanup(installed.remove)
	class := "node-label"
	// create returns the label of a claim as the API server would store it.
	create := func(driver, node string) (label string, err error) {
		stored, err := core.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "node-label-", Annotations: map[string]string{
				claim.SelectedNodeAnnotation: node, claim.ProvisionerAnnotation: driver,
			}},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceStorage: resource.MustParse("1Gi"),
				}},
			},
		}, metav1.CreateOptions{DryRun: dry})
		if err != nil {
			return "", err
		}
		return stored.Labels[claim.NodeLabel], nil
	}
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(100 * time.Millisecond) {
		if label, err := create(localDriver, "n1"); err == nil && label == "n1" {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the policy does not act: %q, %v", label, err)
		}
	}
	longest := strings.Repeat("a.", 31) + "b"
	for _, c := range []struct{ driver, node, label string }{
		{localDriver, longest, longest},
		{localDriver, longest + "c", ""},
		{localDriver, "", ""},
		{localDriver, "not a node", ""},
		{localDriver, "-n1", ""},
		{"other.example", "n1", ""},
	} {
		if label, err := create(c.driver, c.node); err != nil || label != c.label {
			t.Errorf("driver %s, node %q: label %q, want %q; %v", c.driver, c.node, label, c.label, err)
		}
	}
}
