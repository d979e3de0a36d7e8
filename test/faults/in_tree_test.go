//go:build kubernetes

package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// checkInTree runs the first command of the migration guide.
func checkInTree(t *testing.T) (output string, ok bool) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "../../deploy/migrate/check-in-tree")
	command.Env = append(os.Environ(), "KUBECTL="+filepath.Join(os.Getenv(programsVariable), "kubectl")+" --kubeconfig="+sharedFile)
	out, err := command.CombinedOutput()
	return string(out), err == nil
}

func TestMigrationCheck_findsInTreeVolumes(t *testing.T) {
	if out, ok := checkInTree(t); !ok || !strings.Contains(out, "No in-tree volumes") {
		t.Fatalf("a cluster without them: %v\n%s", ok, out)
	}
	const plugin, name = "kubernetes.io/aws-ebs", "in-tree"
	core := kubernetes.NewForConfigOrDie(shared)
	source := &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-0123456789abcdef0"}
	claim := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	meta := metav1.ObjectMeta{Name: name}
	for _, c := range []struct {
		names        string
		make, remove func() error
	}{
		{"PersistentVolumes with awsElasticBlockStore:\n  " + name, func() error {
			_, err := core.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: meta, Spec: corev1.PersistentVolumeSpec{
				AccessModes: claim.AccessModes, Capacity: claim.Resources.Requests,
				PersistentVolumeSource: corev1.PersistentVolumeSource{AWSElasticBlockStore: source},
			}}, metav1.CreateOptions{})
			return err
		}, func() error {
			return core.CoreV1().PersistentVolumes().Delete(t.Context(), name, metav1.DeleteOptions{})
		}},
		{"StorageClasses of " + plugin + ":\n  " + name, func() error {
			_, err := core.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{ObjectMeta: meta, Provisioner: plugin}, metav1.CreateOptions{})
			return err
		}, func() error {
			return core.StorageV1().StorageClasses().Delete(t.Context(), name, metav1.DeleteOptions{})
		}},
		{"Claims that wait for " + plugin + ":\n  default/" + name, func() error {
			meta := *meta.DeepCopy()
			meta.Annotations = map[string]string{"volume.kubernetes.io/storage-provisioner": plugin}
			_, err := core.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: claim}, metav1.CreateOptions{})
			return err
		}, func() error {
			return core.CoreV1().PersistentVolumeClaims("default").Delete(t.Context(), name, metav1.DeleteOptions{})
		}},
		{"Pods with a volume awsElasticBlockStore:\n  default/" + name, func() error {
			_, err := core.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "main", Image: "none"}},
				Volumes:    []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{AWSElasticBlockStore: source}}},
			}}, metav1.CreateOptions{})
			return err
		}, func() error { return core.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}) }},
	} {
		if err := c.make(); err != nil {
			t.Fatal(err)
		}
		if out, ok := checkInTree(t); ok || !strings.Contains(out, c.names) || !strings.Contains(out, "Stay with the AWS EBS CSI driver") {
			t.Errorf("it does not say %q and refuse:\n%s", c.names, out)
		}
		if err := c.remove(); err != nil {
			t.Fatal(err)
		}
	}
}
