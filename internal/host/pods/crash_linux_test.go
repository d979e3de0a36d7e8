package pods

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
)

const crashRoot = "HOLDFAST_PODS_CRASH_ROOT"

// TestCrash_atEachStepStartsEachContainerOnce kills the host once between any
// two steps of a pod's life, and starts it again each time.
func TestCrash_atEachStepStartsEachContainerOnce(t *testing.T) {
	if root := os.Getenv(crashRoot); root != "" {
		liveThrough(t, root)
		return
	}
	root := t.TempDir()
	trace := filepath.Join(t.TempDir(), "trace")
	deaths := 0
	for ; ; deaths++ {
		child := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
		var output bytes.Buffer
		child.Stdout, child.Stderr = &output, &output
		child.Env = append(os.Environ(), crashRoot+"="+root, runVariable+"="+strconv.Itoa(os.Getpid()), failpoint.TermsVariable+"=*=kill-once", failpoint.TraceVariable+"="+trace)
		err := child.Run()
		if err == nil {
			break
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !exit.Sys().(syscall.WaitStatus).Signaled() || deaths > 40 {
			t.Fatalf("after %d deaths: %v\n%s", deaths, err, output.String())
		}
	}
	passed, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range []string{"pods/recorded", "pods/mounted", "workload/intent", "workload/forked", "workload/started", "pods/stopped", "pods/unmounted", "pods/removed"} {
		if !strings.Contains(string(passed), point+"\n") {
			t.Errorf("nothing died at %s", point)
		}
	}
	started, err := os.ReadFile(filepath.Join(root, "volume-data", "started"))
	if err != nil || string(started) != "first\nmain\n" {
		t.Errorf("started: %q, %v", started, err)
	}
	if left := processes(t, nap(5020)); left != 0 {
		t.Errorf("%d processes are left", left)
	}
	if left, err := os.ReadDir(filepath.Join(root, "pods")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if deaths < 8 {
		t.Errorf("it died %d times only", deaths)
	}
}

// liveThrough is the life of a pod, from where the host before left it.
func liveThrough(t *testing.T, root string) {
	f := newFixtureAt(t, root)
	points, err := failpoint.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	f.points = points
	f.run()
	marker := filepath.Join(root, "applied")
	if _, err := os.Stat(marker); err != nil {
		pod := newPod("a", corev1.RestartPolicyAlways, shell("main", "echo main >> /holdfast-test/started; exec "+nap(5020)))
		pod.Spec.InitContainers = []corev1.Container{shell("first", "echo first >> /holdfast-test/started")}
		f.apply(pod)
		if err := os.WriteFile(marker, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pod := f.pod("a"); pod != nil && pod.DeletionTimestamp == nil {
		f.until("a", func(p *corev1.Pod) bool {
			// Ready says that the command was executed, and not that its first line was.
			started, _ := os.ReadFile(filepath.Join(root, "volume-data", "started"))
			return condition(p, corev1.PodReady).Status == corev1.ConditionTrue && strings.HasSuffix(string(started), "main\n")
		})
		f.delete("a")
	}
	f.until("a", isGone)
}
