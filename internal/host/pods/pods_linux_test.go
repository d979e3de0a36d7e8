package pods

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/volumes"
)

func TestPod_runsToItsEndAndGivesItsVolumesBack(t *testing.T) {
	f := newFixture(t)
	f.run()
	pod := newPod("a", corev1.RestartPolicyNever, shell("main", "echo done > /holdfast-test/file; exit 0"))
	pod.Spec.InitContainers = []corev1.Container{shell("first", "echo 1 >> /holdfast-test/order"), shell("second", "echo 2 >> /holdfast-test/order")}
	f.apply(pod)
	got := f.until("a", hasPhase(corev1.PodSucceeded))
	eventually(t, func() bool { return f.volumes.tookAway(pod.UID) == 1 })
	if data, err := os.ReadFile(filepath.Join(f.root, "volume-data", "order")); err != nil || string(data) != "1\n2\n" {
		t.Errorf("the init containers wrote %q, %v", data, err)
	}
	status := got.Status.ContainerStatuses[0]
	if status.State.Terminated == nil || status.State.Terminated.Reason != "Completed" || status.Ready {
		t.Errorf("container %+v", status)
	}
	if c := condition(got, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "PodCompleted" {
		t.Errorf("Ready: %+v", c)
	}
	if len(got.Status.InitContainerStatuses) != 2 || !got.Status.InitContainerStatuses[1].Ready {
		t.Errorf("init containers %+v", got.Status.InitContainerStatuses)
	}
}

func TestPod_failsWithItsContainer(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.apply(newPod("a", corev1.RestartPolicyNever, shell("main", "exit 3"), shell("other", "exit 0")))
	got := f.until("a", hasPhase(corev1.PodFailed))
	if ended := got.Status.ContainerStatuses[0].State.Terminated; ended == nil || ended.ExitCode != 3 || ended.Reason != "Error" {
		t.Errorf("container %+v", got.Status.ContainerStatuses[0])
	}
}

func TestPod_ofAnInitContainerThatFails(t *testing.T) {
	f := newFixture(t)
	f.run()
	pod := newPod("a", corev1.RestartPolicyNever, shell("main", "touch /holdfast-test/main"))
	pod.Spec.InitContainers = []corev1.Container{shell("first", "exit 4")}
	f.apply(pod)
	got := f.until("a", hasPhase(corev1.PodFailed))
	if got.Status.ContainerStatuses[0].State.Waiting == nil || got.Status.ContainerStatuses[0].State.Waiting.Reason != "PodInitializing" {
		t.Errorf("main container %+v", got.Status.ContainerStatuses[0])
	}
	if _, err := os.Stat(filepath.Join(f.root, "volume-data", "main")); err == nil {
		t.Error("the main container ran")
	}
}

func TestPod_survivesTheHost(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.apply(newPod("a", corev1.RestartPolicyAlways, shell("main", nap(5001)), shell("side", nap(5002))))
	pod := f.until("a", func(p *corev1.Pod) bool {
		return p != nil && condition(p, corev1.PodReady).Status == corev1.ConditionTrue
	})
	before := [2]int{f.pid(pod, "main"), f.pid(pod, "side")}
	version := pod.ResourceVersion
	for range 2 {
		f.halt()
		f.run()
		eventually(t, func() bool { return f.runs() == 1 })
		if after := [2]int{f.pid(pod, "main"), f.pid(pod, "side")}; after != before {
			t.Fatalf("processes %v, before %v", after, before)
		}
	}
	if got := f.pod("a"); got.ResourceVersion != version {
		t.Errorf("a restart wrote the pod: %+v, before %+v", got.Status, pod.Status)
	}
	if n := f.volumes.asked(pod.UID); n != 1 {
		t.Errorf("the volumes were asked for %d times", n)
	}
	f.delete("a")
	f.until("a", isGone)
	if n := processes(t, nap(5001)) + processes(t, nap(5002)); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	if _, err := os.Stat(filepath.Join(f.root, "pods", string(pod.UID))); err == nil {
		t.Error("the pod's directory is left")
	}
}

func TestPod_endIsSeenByTheNextHost(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.apply(newPod("a", corev1.RestartPolicyNever, shell("main", "while [ ! -e /holdfast-test/go ]; do sleep 0.01; done; exit 9")))
	f.until("a", hasPhase(corev1.PodRunning))
	f.halt()
	if err := os.WriteFile(filepath.Join(f.root, "volume-data", "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	f.run()
	got := f.until("a", hasPhase(corev1.PodFailed))
	if ended := got.Status.ContainerStatuses[0].State.Terminated; ended == nil || ended.ExitCode != 9 {
		t.Errorf("container %+v", got.Status.ContainerStatuses[0])
	}
}

func TestPod_killedShimIsSeenAndReplaced(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.apply(newPod("a", corev1.RestartPolicyAlways, shell("main", "setsid "+nap(5003)+" & "+nap(5003))))
	pod := f.until("a", hasPhase(corev1.PodRunning))
	first := f.pid(pod, "main")
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	pod = f.until("a", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount == 1 && p.Status.ContainerStatuses[0].Ready
	})
	if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 137 || last.Reason != "Unknown" {
		t.Errorf("last state %+v", last)
	}
	eventually(t, func() bool { return processes(t, nap(5003)) == 3 }) // those of the second attempt only
}

func TestPod_restartBackOff(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.apply(newPod("a", corev1.RestartPolicyOnFailure, shell("main", "exit 1")))
	pod := f.until("a", func(p *corev1.Pod) bool {
		return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == "CrashLoopBackOff"
	})
	status := pod.Status.ContainerStatuses[0]
	if status.RestartCount != 1 || !strings.HasPrefix(status.State.Waiting.Message, "back-off 10s restarting failed container=main pod=a_default(uid-a)") {
		t.Errorf("container %+v", status)
	}
	if pod.Status.Phase != corev1.PodRunning {
		t.Errorf("phase %s", pod.Status.Phase)
	}
	eventually(t, func() bool { return f.reasons() == "Started Started BackOff" })
	// Ten seconds later by the manager's clock.
	f.mu.Lock()
	f.skew = 11 * time.Second
	f.mu.Unlock()
	f.set.Queue(ControllerName).Add("default/a")
	f.until("a", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 2 })
	f.delete("a")
	f.until("a", isGone)
}

// The state of a container can have its end before its shim has ended. With many
// containers that end at once, some are seen so by the controller.
func TestPods_whoseContainersEndAtOnceAreAllStartedAgain(t *testing.T) {
	f := newFixture(t)
	f.run()
	const count = 40
	for i := range count {
		f.apply(newPod(fmt.Sprint("p", i), corev1.RestartPolicyOnFailure, shell("main", "exit 1")))
	}
	for i := range count {
		f.until(fmt.Sprint("p", i), func(p *corev1.Pod) bool {
			return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount == 1
		})
	}
}

func TestPod_killsAfterTheGracePeriod(t *testing.T) {
	f := newFixture(t)
	f.run()
	pod := newPod("a", corev1.RestartPolicyAlways, shell("main", "trap '' TERM; touch /holdfast-test/deaf; while :; do sleep 0.1; done"))
	*pod.Spec.TerminationGracePeriodSeconds = 1
	f.apply(pod)
	f.until("a", hasPhase(corev1.PodRunning))
	eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(f.root, "volume-data", "deaf"))
		return err == nil
	})
	begin := time.Now()
	f.delete("a")
	f.until("a", isGone)
	if took := time.Since(begin); took < time.Second || took > 30*time.Second { // the default grace period
		t.Errorf("it took %s", took)
	}
	if f.volumes.tookAway(pod.UID) != 1 {
		t.Error("the volumes were not taken away")
	}
}

func TestPod_waitsForItsVolumes(t *testing.T) {
	f := newFixture(t)
	f.volumes.fail(volumes.ErrWaiting, nil)
	f.run()
	f.apply(newPod("a", corev1.RestartPolicyAlways, shell("main", "sleep 5004")))
	pod := f.until("a", func(p *corev1.Pod) bool {
		return p != nil && condition(p, corev1.PodReadyToStartContainers).Reason == "WaitingForVolumes"
	})
	if pod.Status.Phase != corev1.PodPending || strings.Contains(f.reasons(), "FailedMount") {
		t.Errorf("phase %s, events %s", pod.Status.Phase, f.reasons())
	}
	f.volumes.fail(errors.New("no such disk"), nil)
	f.set.Queue(ControllerName).Add("default/a")
	eventually(t, func() bool { return strings.Contains(f.reasons(), "FailedMount") })
	f.volumes.fail(nil, nil)
	f.until("a", hasPhase(corev1.PodRunning))
}

// A run starts its containers when the volumes are mounted; it does not wait for the
// write of the status.
func TestReady_isCalledBeforeTheStatusSaysSo(t *testing.T) {
	f := newFixture(t)
	phases := make(chan corev1.PodPhase, 1)
	pod := newPod("a", corev1.RestartPolicyAlways, shell("main", "true"))
	pod.Annotations = map[string]string{HolderAnnotation: "holdfast run"}
	f.ready = func() {
		if _, mounted := f.manager.Mounted(pod.UID); mounted {
			phases <- f.pod("a").Status.Phase
		}
	}
	f.apply(pod)
	f.run()
	select {
	case phase := <-phases:
		if phase == corev1.PodRunning {
			t.Error("the status was written first")
		}
	case <-time.After(timeout):
		t.Fatal("Ready was not called, or too early for Mounted")
	}
	f.until("a", hasPhase(corev1.PodRunning))
}

func TestPod_ofAHolderRunsNothing(t *testing.T) {
	f := newFixture(t)
	f.run()
	pod := newPod("a", corev1.RestartPolicyAlways, shell("main", nap(5005)))
	pod.Annotations = map[string]string{HolderAnnotation: "podman"}
	f.apply(pod)
	got := f.until("a", hasPhase(corev1.PodRunning))
	if len(got.Status.ContainerStatuses) != 0 || processes(t, nap(5005)) != 0 || condition(got, corev1.PodReady).Status != corev1.ConditionTrue {
		t.Errorf("status %+v", got.Status)
	}
	if _, mounted := f.manager.Mounted(pod.UID); !mounted {
		t.Error("its volumes are not known")
	}
	f.delete("a")
	f.until("a", isGone)
	if f.volumes.tookAway(pod.UID) != 1 {
		t.Error("the volumes were not taken away")
	}
}

func TestPod_ofTheSameNameWaitsForTheOldOne(t *testing.T) {
	f := newFixture(t)
	f.run()
	old := newPod("a", corev1.RestartPolicyAlways, shell("main", "trap 'sleep 0.5; exit 0' TERM; while :; do sleep 0.05; done"))
	f.apply(old)
	f.until("a", hasPhase(corev1.PodRunning))
	f.halt()
	again := newPod("a", corev1.RestartPolicyAlways, shell("main", "sleep 5006"))
	again.UID = "uid-other"
	f.apply(again)
	f.run()
	eventually(t, func() bool { return f.volumes.tookAway(old.UID) == 1 })
	f.until("a", func(p *corev1.Pod) bool { return p.UID == "uid-other" && p.Status.Phase == corev1.PodRunning })
	if _, err := os.Stat(filepath.Join(f.root, "pods", string(old.UID))); err == nil {
		t.Error("the old pod's directory is left")
	}
}
