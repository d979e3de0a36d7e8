package host_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const whyClaim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: NAME}
spec:
  storageClassName: CLASS
  accessModes: [MODE]
  resources: {requests: {storage: 32Mi}}
---
`

func claimManifest(name, class, mode string) string {
	return strings.NewReplacer("NAME", name, "CLASS", class, "MODE", mode).Replace(whyClaim)
}

func podManifest(name, claim string) string {
	_, pod, _ := strings.Cut(sleepingPod, "---\n")
	return strings.ReplaceAll(strings.ReplaceAll(pod, "claimName: NAME", "claimName: "+claim), "NAME", name)
}

func classManifest(name, driver string) string {
	return "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: " + name + "}\nprovisioner: " + driver + "\n---\n"
}

// Exit codes of why.
const (
	whyFine  = 0
	whyWaits = 3
	whyStuck = 4
)

// whyUntil asks why until the answer has all words, and a person has to act.
func (m *machine) whyUntil(subject string, words ...string) {
	m.t.Helper()
	m.whyEnds(subject, whyStuck, words...)
}

// whyEnds asks why until it ends with a code and the answer has all words.
func (m *machine) whyEnds(subject string, want int, words ...string) {
	m.t.Helper()
	m.until(subject+" is explained with "+strings.Join(words, ", "), limitOfTest, func() bool {
		said, err := m.ask("why", subject)
		code := 0
		if ended, ok := errors.AsType[*exec.ExitError](err); ok {
			code = ended.ExitCode()
		} else if err != nil {
			m.t.Fatalf("why %s: %v\n%s", subject, err, said)
		}
		if code == 1 || code == 2 {
			m.t.Fatalf("why %s: exit code %d\n%s", subject, code, said)
		}
		if code != want {
			return false
		}
		for _, word := range words {
			if !strings.Contains(said, word) {
				return false
			}
		}
		return true
	})
}

func TestWhy_aClassThatIsMissing(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.apply(claimManifest("data", "nope", "ReadWriteOnce"))
	m.whyUntil("pvc/data", "nope", "does not exist", "Create the class")
}

func TestWhy_aDriverThatIsNotThere(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.apply(classManifest("far", "absent.example") + claimManifest("data", "far", "ReadWriteOnce") + podManifest("web", "data"))
	m.whyUntil("pvc/data", "absent.example", "not registered", "plugins_registry")
	m.whyUntil("pod/web", "data", "absent.example", "not registered")
}

func TestWhy_aClaimThatIsMissing(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.apply(podManifest("web", "gone"))
	m.whyUntil("pod/web", "claim gone", "does not exist", "Create the claim")
}

func TestWhy_aRequestThatTheDriverRefuses(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.apply(idleClass + claimManifest("shared", "idle", "ReadWriteMany"))
	m.whyUntil("pvc/shared", "CreateVolume InvalidArgument", "MULTI_NODE_MULTI_WRITER", "correct the parameters")
}

// A volume that cannot be mounted: the answer names the obstacle and the number of
// attempts.
func TestWhy_aVolumeThatCannotBeMounted(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.apply(idleClass + claimManifest("data", "idle", "ReadWriteOnce"))
	m.until("the claim is bound", limitOfTest, func() bool {
		return get[*corev1.PersistentVolumeClaim](m, "persistentvolumeclaims", "default", "data").Status.Phase == corev1.ClaimBound
	})
	images, err := filepath.Glob(filepath.Join(m.root, "pool", "volumes", "*"))
	if err != nil || len(images) == 0 {
		t.Fatalf("the pool has no volume: %v", err)
	}
	for _, image := range images {
		if err := os.Rename(image, filepath.Join(m.root, filepath.Base(image))); err != nil {
			t.Fatal(err)
		}
	}
	m.apply(podManifest("web", "data"))
	m.whyUntil("pod/web", "NodeStageVolume", "NotFound", "times")
}

func TestWhy_aClaimThatWaitsAndIsFine(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.apply(strings.Replace(idleClass, "provisioner:", "volumeBindingMode: WaitForFirstConsumer\nprovisioner:", 1) + claimManifest("data", "idle", "ReadWriteOnce"))
	m.whyEnds("pvc/data", whyWaits, "waits for a pod that uses it")
	m.apply(podManifest("web", "data"))
	m.running("web")
	m.whyEnds("pvc/data", whyFine, "bound to volume")
	m.whyEnds("pod/web", whyFine, "the pod runs; its volumes are mounted")
	m.mustRun("delete", "pod/web")
}

// Pods whose containers do not run are not fine, though their volumes are mounted.
func TestWhy_aContainerThatDoesNotRun(t *testing.T) {
	m := newMachine(t)
	m.start()
	for name, command := range map[string]string{"crashing": "[sh, -c, 'exit 3']", "missing": "[/no/such/program]"} {
		m.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  containers: [{name: main, command: " + command + "}]\n")
	}
	m.whyUntil("pod/crashing", "container main fails after each restart", "exit code 3", "holdfast logs crashing")
	m.whyUntil("pod/missing", "the program of container main, or one that it calls, is not found", "on this machine", "holdfast logs missing")
	m.mustRun("delete", "pod/crashing", "pod/missing")
}
