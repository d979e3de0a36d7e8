package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-csi/holdfast/internal/why"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// TestWhy_asksACluster goes over HTTP to an API server in memory, which has no
// snapshots.
func TestWhy_asksACluster(t *testing.T) {
	class := "fast"
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop", UID: "c1"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, DataSource: &corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", Name: "s"},
	}}
	pvc.Status.Phase = corev1.ClaimPending
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "shop"}, InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Name: "data", Namespace: "shop", UID: "c1"},
		Type: corev1.EventTypeWarning, Reason: "ProvisioningFailed", Message: "rpc error: code = ResourceExhausted desc = full", Count: 3,
	}
	cluster := apiserver.New(t, &csidriver.Driver{Name: "d.example"}, pvc, event,
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "d.example"}, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d.example"}})
	cluster.Unserve("snapshot.storage.k8s.io", true)
	var out, failures bytes.Buffer
	if code := Run(t.Context(), "", []string{"why", "pvc/data", "-n", "shop", "--kubeconfig", cluster.Kubeconfig(), "-o", "json"}, &out, &failures); code != exitStuck {
		t.Fatalf("exit code %d: %s", code, failures.String())
	}
	var report why.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Findings) != 2 || !strings.Contains(report.Findings[0].What, "VolumeSnapshot s does not exist") || report.Findings[1].Code != "ResourceExhausted" || report.Findings[1].Attempts != 3 {
		t.Errorf("got %s", out.String())
	}
}

func TestWhy_commandLine(t *testing.T) {
	root := t.TempDir()
	for want, given := range map[string][]string{
		"want KIND/NAME":     {"why", "data"},
		"want json":          {"why", "pvc/data", "-o", "yaml"},
		"no host is running": {"why", "pvc/data", "--root", root},
		"kubeconfig":         {"why", "pvc/data", "--kubeconfig", root + "/none"},
	} {
		var out, failures bytes.Buffer
		if code := Run(t.Context(), "", given, &out, &failures); code == 0 || !strings.Contains(failures.String(), want) {
			t.Errorf("%v: exit code %d: %s", given, code, failures.String())
		}
	}
}

func TestWhy_takesTheNamespaceOfTheContext(t *testing.T) {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop", UID: "c1"}}
	cluster := apiserver.New(t, &csidriver.Driver{Name: "d.example"}, pvc)
	config, err := clientcmd.LoadFromFile(cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts[config.CurrentContext].Namespace = "shop"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	for want, given := range map[string][]string{
		"pvc/data in namespace shop":  nil,
		"pvc/data in namespace other": {"-n", "other"},
	} {
		var out, failures bytes.Buffer
		code := Run(t.Context(), "", append([]string{"why", "pvc/data", "--kubeconfig", path}, given...), &out, &failures)
		if said := out.String() + failures.String(); !strings.Contains(said, want) {
			t.Errorf("%v: exit code %d: %s; want %q", given, code, said, want)
		}
	}
}
