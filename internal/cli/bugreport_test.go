package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const reportMarker = "marker-of-the-cluster"

// reported is a cluster with Holdfast, with a marker in each place that can have a secret.
func reported(t *testing.T) *apiserver.Cluster {
	t.Helper()
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"p":"` + reportMarker + `"}`}}
	}
	// The simulated API server answers a log with the pod, whose marked fields are as in one.
	holdfast := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "holdfast-node-1"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "driver", Image: "example.com/holdfast:1", Args: []string{"--token=" + reportMarker},
		Env: []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://u:" + reportMarker + "@proxy"}},
	}, {Name: "vendor", Image: "example.com/csi:1"}}}}
	other := &corev1.Pod{ObjectMeta: meta("shop", "web"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}}}
	volume := &corev1.PersistentVolume{ObjectMeta: meta("", "pv-1"), Spec: corev1.PersistentVolumeSpec{
		MountOptions: []string{"vers=3", "password=" + reportMarker},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: "d.example", VolumeHandle: "handle-1", VolumeAttributes: map[string]string{"chapPassword": reportMarker},
		}},
	}}
	return apiserver.New(t, &csidriver.Driver{Name: "d.example"}, holdfast, other, volume, claimIn("shop"),
		&storagev1.StorageClass{ObjectMeta: meta("", "fast"), Provisioner: "d.example", Parameters: map[string]string{"type": "gp3", "adminPassword": reportMarker}},
		&corev1.ConfigMap{ObjectMeta: meta("storage", "holdfast-intents-1"), Data: map[string]string{
			"volume.a": `{"id":"1","intent":{"name":"pvc-a","parameters":{"password":"` + reportMarker + `"}}}`,
		}},
		&corev1.ConfigMap{ObjectMeta: meta("storage", "settings"), Data: map[string]string{"p": reportMarker}},
		apiserver.Secret("storage", "keys", map[string]string{"p": reportMarker}),
		&corev1.Event{
			ObjectMeta: meta("shop", "e1"), Reason: "ProvisioningFailed", Message: "login https://u:" + reportMarker + "@x failed",
			InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Name: "data"},
		},
		&corev1.Event{
			ObjectMeta: meta("shop", "e2"), Reason: "Unhealthy", Message: "the program said " + reportMarker,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web"},
		})
}

// archived unpacks an archive: its files by their paths below its directory.
func archived(t *testing.T, file string) map[string]string {
	t.Helper()
	data, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = data.Close() }()
	plain, err := gzip.NewReader(data)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(plain); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(content)
	}
}

// A report about a cluster has its objects without their secrets. A kind that may not be
// read is missing with the reason, and nothing else is.
func TestBugreport_ofACluster(t *testing.T) {
	served := reported(t)
	forbidden := func(resource string) {
		served.React("list", resource, func(apiserver.Request) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))
		})
	}
	forbidden("volumeattachments")
	forbidden("leases")
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	var out, failures bytes.Buffer
	arguments := []string{"bugreport", "--kubeconfig", served.Kubeconfig(), "--yes", "-o", file}
	if code := Run(t.Context(), "test", arguments, &out, &failures); code != 0 {
		t.Fatalf("it ends with %d: %s", code, &failures)
	}
	files := archived(t, file)
	for name, want := range map[string]string{
		"version.txt": "holdfast test", "driver/pods.json": `"holdfast-node-1"`, "driver/intents.json": `"pvc-a"`,
		"objects/persistentvolumes.json": `"handle-1"`, "objects/persistentvolumeclaims.json": `"data"`,
		"objects/storageclasses.json": `"gp3"`, "objects/events.json": "ProvisioningFailed", "objects/csidrivers.json": "null",
		"objects/volumeattachments.json.missing": "no right", "driver/leases.json.missing": "namespace storage: forbidden",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has %q, not %q", name, files[name], want)
		}
	}
	for name, text := range files {
		for _, unwanted := range []string{reportMarker, "managedFields", "Unhealthy", `"web"`} {
			if strings.Contains(text, unwanted) {
				t.Errorf("%s has %q: %s", name, unwanted, text)
			}
		}
		if !strings.Contains(out.String(), strings.TrimSuffix(name, ".missing")) {
			t.Errorf("%s is not in the list: %s", name, &out)
		}
	}
	if text, ok := files["logs/storage/holdfast-node-1/vendor.txt"]; ok {
		t.Errorf("the log of a vendor's driver is in the report: %q", text)
	}
	if text := files["logs/storage/holdfast-node-1/driver.txt"]; !strings.Contains(text, "--token=(redacted)") {
		t.Errorf("the log of the driver is %q", text)
	}
}

func TestBugreport_withoutTheRightToListPods(t *testing.T) {
	served := reported(t)
	served.React("list", "pods", func(r apiserver.Request) error {
		if r.Namespace == "storage" {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no right"))
	})
	for more, want := range map[string]string{"": "driver/pods.json.missing", "storage": "driver/pods.json"} {
		file := filepath.Join(t.TempDir(), "report.tar.gz")
		var out, failures bytes.Buffer
		arguments := []string{"bugreport", "--kubeconfig", served.Kubeconfig(), "--yes", "-o", file, "-n", more}
		if code := Run(t.Context(), "test", arguments, &out, &failures); code != 0 {
			t.Fatalf("it ends with %d: %s", code, &failures)
		}
		text, ok := archived(t, file)[want]
		if !ok || more == "" && !strings.Contains(text, "--namespace") {
			t.Errorf("-n %q: %s has %q in\n%s", more, want, text, &out)
		}
	}
}
