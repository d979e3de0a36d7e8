package chart

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// examples are the manifests of a directory, strictly decoded.
func examples(t *testing.T, pattern string) (all objects) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, decode(t, string(text))...)
	}
	return all
}

// exampleDirectories are those with manifests, and the backend they are for.
func exampleDirectories() map[string]string {
	return map[string]string{"../../../examples/*.yaml": "local", "../../examples/*.yaml": "local", "../../../examples/ebs/*.yaml": "ebs"}
}

// What the chart or another example does not make is not there.
func TestExamples_nameClassesThatThereAre(t *testing.T) {
	for pattern, backend := range exampleDirectories() {
		installed := render(t, "{backend: "+backend+", installSnapshotClasses: always}")
		given := examples(t, pattern)
		var classes, snapshotClasses []string
		for _, class := range of[*storagev1.StorageClass](append(installed, given...)) {
			classes = append(classes, class.Name)
		}
		for _, class := range of[*snapshotv1.VolumeSnapshotClass](append(installed, given...)) {
			snapshotClasses = append(snapshotClasses, class.Name)
		}
		for _, claim := range of[*corev1.PersistentVolumeClaim](given) {
			static := *claim.Spec.StorageClassName == "" && claim.Spec.VolumeName != ""
			if !static && !slices.Contains(classes, *claim.Spec.StorageClassName) {
				t.Errorf("%s: claim %s is of class %s; there are %v", pattern, claim.Name, *claim.Spec.StorageClassName, classes)
			}
		}
		for _, snapshot := range of[*snapshotv1.VolumeSnapshot](given) {
			if !slices.Contains(snapshotClasses, *snapshot.Spec.VolumeSnapshotClassName) {
				t.Errorf("%s: snapshot %s is of class %s; there are %v", pattern, snapshot.Name, *snapshot.Spec.VolumeSnapshotClassName, snapshotClasses)
			}
		}
	}
}

// TestExamples_leaveTheInstallationAlone: applying an example must not fight with
// helm over an object, and deleting one must not take the driver's away.
func TestExamples_leaveTheInstallationAlone(t *testing.T) {
	for pattern, backend := range exampleDirectories() {
		given := examples(t, pattern)
		if n := len(of[*storagev1.CSIDriver](given)); n != 0 {
			t.Errorf("%s: %d CSIDriver objects", pattern, n)
		}
		for _, class := range of[*storagev1.StorageClass](render(t, "{backend: "+backend+"}")) {
			for _, other := range of[*storagev1.StorageClass](given) {
				if other.Name == class.Name {
					t.Errorf("%s has the StorageClass %s of the chart", pattern, class.Name)
				}
			}
		}
	}
}

// A node of a test cluster has the image, and no registry to ask for a newer one.
func TestExamples_useImagesThatAreThere(t *testing.T) {
	for pattern := range exampleDirectories() {
		for _, pod := range of[*corev1.Pod](examples(t, pattern)) {
			for _, container := range pod.Spec.Containers {
				if container.Image != "busybox" || container.ImagePullPolicy != corev1.PullIfNotPresent {
					t.Errorf("%s: pod %s: image %s, pulled %s", pattern, pod.Name, container.Image, container.ImagePullPolicy)
				}
			}
		}
	}
}
