//go:build kubernetes

package faults

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// TestNodeLabelPolicy: the policies of local-node-label.yaml label what concerns the driver.
func TestNodeLabelPolicy(t *testing.T) {
	t.Parallel()
	core := kubernetes.NewForConfigOrDie(shared)
	installed := installPolicies(t.Context(), t, core, shipped(t, "local-node-label.yaml"), nil, nil, nil)
	if installed.made["MutatingAdmissionPolicy"] != 2 {
		t.Fatalf("the manifest has %v", installed.made)
	}
	t.Cleanup(installed.remove)
	t.Run("claims", func(t *testing.T) { labelsClaims(t, core) })
	t.Run("volumes", func(t *testing.T) { labelsVolumes(t, core) })
}

// labelsClaims: a claim has the node that is selected for it, and every other write is as it
// would be without the policy.
func labelsClaims(t *testing.T, core kubernetes.Interface) {
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

// labelsVolumes: PersistentVolumes of the driver that are created or left without the label get
// it, and no others.
func labelsVolumes(t *testing.T, core kubernetes.Interface) {
	volume := func(driver string, labels map[string]string) *corev1.PersistentVolume {
		pv := localVolume("labelled", "n1")
		pv.Name, pv.GenerateName, pv.Labels, pv.Spec.CSI.Driver = "", "node-label-", labels, driver
		return pv
	}
	volumes := core.CoreV1().PersistentVolumes()
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(100 * time.Millisecond) {
		stored, err := volumes.Create(t.Context(), volume(localDriver, nil), metav1.CreateOptions{DryRun: dry})
		if err == nil && stored.Labels[claim.NodeLabel] == claim.UnknownNode {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the policy does not act: %v, %v", stored.Labels, err)
		}
	}
	for name, row := range map[string]struct {
		driver string
		labels map[string]string
		want   map[string]string
	}{
		"with another label": {localDriver, map[string]string{"team": "a"}, map[string]string{"team": "a", claim.NodeLabel: claim.UnknownNode}},
		"of a node":          {localDriver, map[string]string{claim.NodeLabel: "n1"}, map[string]string{claim.NodeLabel: "n1"}},
		"of any node":        {localDriver, map[string]string{claim.NodeLabel: claim.AnyNode}, map[string]string{claim.NodeLabel: claim.AnyNode}},
		"of another driver":  {"other.example", nil, nil},
	} {
		stored, err := volumes.Create(t.Context(), volume(row.driver, row.labels), metav1.CreateOptions{DryRun: dry})
		if err != nil || !maps.Equal(stored.Labels, row.want) {
			t.Errorf("a volume %s: %v, %v; want %v", name, stored.Labels, err, row.want)
		}
	}

	stored, err := volumes.Create(t.Context(), volume(localDriver, map[string]string{claim.NodeLabel: "n1"}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = volumes.Delete(context.Background(), stored.Name, metav1.DeleteOptions{}) })
	stored, err = volumes.Patch(t.Context(), stored.Name, types.MergePatchType, []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{})
	if err != nil || stored.Labels[claim.NodeLabel] != claim.UnknownNode {
		t.Errorf("a volume whose label was removed: %v, %v", stored.Labels, err)
	}
}
