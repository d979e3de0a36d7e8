package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// contexts writes a kubeconfig with two contexts of a cluster: in the namespace shop, the
// current one, and in bank.
func contexts(t *testing.T, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	here := config.Contexts[config.CurrentContext]
	other := here.DeepCopy()
	here.Namespace, other.Namespace = "shop", "bank"
	config.Contexts["other"] = other
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func claimIn(namespace string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: namespace, UID: "c1"}}
}

// The plugin reads the cluster and the namespace that kubectl would.
func TestKubectlPlugin_readsTheClusterOfKubectl(t *testing.T) {
	served := apiserver.New(t, &csidriver.Driver{Name: "d.example"}, claimIn("shop"), claimIn("bank"))
	path := contexts(t, served.Kubeconfig())
	t.Setenv("KUBECONFIG", path)
	for line, want := range map[string]string{
		"why pvc/data":                                   "pvc/data in namespace shop",
		"why pvc/data --context other":                   "pvc/data in namespace bank",
		"why pvc/data -n bank":                           "pvc/data in namespace bank",
		"why pvc/data --kubeconfig " + path + " -n bank": "pvc/data in namespace bank",
		"why pvc/data --context none":                    `kubectl holdfast: kubeconfig of $KUBECONFIG or ~/.kube/config, context none`,
		"why pvc/data --kubeconfig /none":                "/none",
		"why data":                                       "See 'kubectl holdfast why --help'.",
		"why pvc/data --root /":                          "unknown flag: --root",
		"wy pvc/data":                                    `unknown command "wy"`,
		"top":                                            "--metrics-volumes",
		"snapshot none":                                  `PersistentVolumeClaim "none" does not exist in namespace shop`,
	} {
		var out, failures bytes.Buffer
		command := append([]string{"/usr/local/bin/kubectl-holdfast"}, strings.Fields(line)...)
		code := Main(t.Context(), "", command, &out, &failures)
		if said := out.String() + failures.String(); !strings.Contains(said, want) {
			t.Errorf("%s: exit code %d: %s; want %q", line, code, said, want)
		}
	}
}

func TestKubectlPlugin_makesSnapshots(t *testing.T) {
	served := apiserver.New(t, &csidriver.Driver{Name: "d.example"}, claimIn("shop"))
	t.Setenv("KUBECONFIG", contexts(t, served.Kubeconfig()))
	run := func(line string) (code int, said string) {
		var out bytes.Buffer
		return Main(t.Context(), "", append([]string{"kubectl-holdfast"}, strings.Fields(line)...), &out, &out), out.String()
	}
	if code, said := run("snapshot pvc/data night --class fast"); code != exitDone || !strings.Contains(said, "/night created") {
		t.Fatalf("exit code %d: %s", code, said)
	}
	clients, err := cluster.Connect(served.Kubeconfig(), "test")
	if err != nil {
		t.Fatal(err)
	}
	snapshots := clients.Snapshots.SnapshotV1().VolumeSnapshots("shop")
	made, err := snapshots.Get(t.Context(), "night", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if spec := made.Spec; *spec.Source.PersistentVolumeClaimName != "data" || *spec.VolumeSnapshotClassName != "fast" {
		t.Errorf("the snapshot is %+v", spec)
	}
	if code, said := run("snapshot data night"); code != exitFailed || !strings.Contains(said, "already exists") {
		t.Errorf("the same again: exit code %d: %s", code, said)
	}
	if code, said := run("snapshot data"); code != exitDone || !strings.Contains(said, "/data-") {
		t.Errorf("without a name: exit code %d: %s", code, said)
	}
	if code, said := run("snapshot data late --wait --timeout 1s"); code != exitFailed || !strings.Contains(said, `VolumeSnapshot "late" of namespace shop is not ready`) {
		t.Errorf("a snapshot that nothing serves: exit code %d: %s", code, said)
	}

	codes := make(chan int, 1)
	go func() {
		code, _ := run("snapshot data soon --wait")
		codes <- code
	}()
	served.Eventually(func() error {
		made, err = snapshots.Get(t.Context(), "soon", metav1.GetOptions{})
		return err
	})
	ready := true
	made.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: &ready}
	served.Put(made)
	if code := <-codes; code != exitDone {
		t.Errorf("a snapshot that is ready: exit code %d", code)
	}
}
