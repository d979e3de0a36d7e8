package pods

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
)

func TestPod_startsAgainAfterAReboot(t *testing.T) {
	for _, c := range []struct {
		policy corev1.RestartPolicy
		phase  corev1.PodPhase
		starts string
	}{{corev1.RestartPolicyAlways, corev1.PodRunning, "first\nmain\nfirst\nmain\n"}, {corev1.RestartPolicyNever, corev1.PodFailed, "first\nmain\n"}} {
		t.Run(string(c.policy), func(t *testing.T) {
			f := newFixture(t)
			f.run()
			pod := newPod("a", c.policy, shell("main", "echo main >> /holdfast-test/started; sleep 5030"))
			pod.Spec.InitContainers = []corev1.Container{shell("first", "echo first >> /holdfast-test/started")}
			f.apply(pod)
			f.until("a", hasPhase(corev1.PodRunning))
			started := filepath.Join(f.root, "volume-data", "started")
			eventually(t, func() bool { return strings.Contains(contentOf(started), "main") })
			shim := f.pid(pod, "main")
			f.halt()
			if err := unix.Kill(shim, unix.SIGKILL); err != nil { // the power fails
				t.Fatal(err)
			}
			f.boot = "boot-2"
			f.run()
			got := f.until("a", func(p *corev1.Pod) bool {
				status := p.Status.ContainerStatuses[0]
				return p.Status.Phase == c.phase && (status.LastTerminationState.Terminated != nil || status.State.Terminated != nil)
			})
			ended := got.Status.ContainerStatuses[0].LastTerminationState.Terminated
			if ended == nil {
				ended = got.Status.ContainerStatuses[0].State.Terminated
			}
			if ended.ExitCode != 137 || ended.Reason != "Unknown" {
				t.Errorf("the end is %+v", ended)
			}
			eventually(t, func() bool { return contentOf(started) == c.starts })
		})
	}
}

// TestDrain_endsPodsThatTheNextBootStarts: nothing runs or is mounted after a drain, no
// object is gone, and for a later host the pods ended as by a power loss, although their
// commands exited with 0 at SIGTERM.
func TestDrain_endsPodsThatTheNextBootStarts(t *testing.T) {
	for _, c := range []struct {
		policy corev1.RestartPolicy
		boot   string // of the next host
		phase  corev1.PodPhase
		starts string
	}{
		{corev1.RestartPolicyAlways, "boot-2", corev1.PodRunning, "first\nmain\nfirst\nmain\n"},
		{corev1.RestartPolicyOnFailure, "boot-2", corev1.PodRunning, "first\nmain\nfirst\nmain\n"},
		{corev1.RestartPolicyOnFailure, "boot-1", corev1.PodRunning, "first\nmain\nmain\n"},
		{corev1.RestartPolicyNever, "boot-2", corev1.PodFailed, "first\nmain\n"},
		{corev1.RestartPolicyNever, "boot-1", corev1.PodFailed, "first\nmain\n"},
	} {
		t.Run(string(c.policy)+" "+c.boot, func(t *testing.T) {
			f := newFixture(t)
			f.run()
			pod := newPod("a", c.policy, shell("main", "trap 'exit 0' TERM; echo main >> /holdfast-test/started; sleep 5030 & wait"))
			pod.Spec.InitContainers = []corev1.Container{shell("first", "echo first >> /holdfast-test/started")}
			f.apply(pod)
			f.until("a", hasPhase(corev1.PodRunning))
			started := filepath.Join(f.root, "volume-data", "started")
			eventually(t, func() bool { return contentOf(started) == "first\nmain\n" })
			f.drain(pod)
			if got := f.pod("a"); got == nil || got.DeletionTimestamp != nil || got.Status.Phase != corev1.PodRunning {
				t.Errorf("the object of a drained pod is %v", got)
			}
			f.halt()
			f.boot = c.boot
			f.run()
			got := f.until("a", func(p *corev1.Pod) bool {
				return p.Status.Phase == c.phase && contentOf(started) == c.starts
			})
			status := got.Status.ContainerStatuses[0]
			ended := status.LastTerminationState.Terminated
			if c.phase == corev1.PodFailed {
				ended = status.State.Terminated
			}
			if ended == nil || ended.ExitCode != 137 || ended.Reason != "Unknown" {
				t.Errorf("the end is %+v", status)
			}
		})
	}
}

// drain drains the host, and checks that the pod neither runs nor is mounted.
func (f *fixture) drain(pod *corev1.Pod) {
	f.t.Helper()
	if f.manager.Drained(store.KeyOf(pod), pod.UID) {
		f.t.Fatal("a pod that runs is drained")
	}
	f.manager.Drain()
	f.set.Queue(ControllerName).Add(store.KeyOf(pod))
	eventually(f.t, func() bool { return f.manager.Drained(store.KeyOf(pod), pod.UID) })
	if f.volumes.tookAway(pod.UID) == 0 {
		f.t.Error("the volumes of a drained pod are mounted")
	}
}

// A pod that is deleted during a drain does not keep the drain waiting.
func TestDrain_doesNotWaitForAPodThatIsRemoved(t *testing.T) {
	f := newFixture(t)
	f.run()
	pod := newPod("a", corev1.RestartPolicyAlways, shell("main", "exec sleep 5033"))
	f.apply(pod)
	f.until("a", hasPhase(corev1.PodRunning))
	f.manager.Drain()
	f.delete("a")
	f.until("a", isGone)
	eventually(t, func() bool { return f.manager.Drained(store.KeyOf(pod), pod.UID) })
}

// An init container that a drain interrupts has not completed.
func TestDrain_interruptsAnInitContainer(t *testing.T) {
	f := newFixture(t)
	f.run()
	pod := newPod("a", corev1.RestartPolicyNever, shell("main", "echo main >> /holdfast-test/started"))
	pod.Spec.InitContainers = []corev1.Container{shell("first", "trap 'exit 0' TERM; echo first >> /holdfast-test/started; sleep 5031 & wait")}
	f.apply(pod)
	started := filepath.Join(f.root, "volume-data", "started")
	eventually(t, func() bool { return contentOf(started) == "first\n" })
	f.pid(pod, "first")
	f.drain(pod)
	f.halt()
	f.boot = "boot-2"
	f.run()
	f.until("a", hasPhase(corev1.PodFailed))
	if got := contentOf(started); got != "first\n" {
		t.Errorf("started: %q", got)
	}
}

// A host that dies between the record of a drain and the signal changes nothing: the
// container continues, and its end is not taken for success.
func TestDrain_isRecordedBeforeTheSignal(t *testing.T) {
	f := newFixture(t)
	f.run()
	pod := newPod("a", corev1.RestartPolicyOnFailure, shell("main", "trap 'exit 0' TERM; echo main >> /holdfast-test/started; sleep 5032 & wait"))
	f.apply(pod)
	started := filepath.Join(f.root, "volume-data", "started")
	f.until("a", hasPhase(corev1.PodRunning))
	eventually(t, func() bool { return contentOf(started) == "main\n" })
	shim := f.pid(pod, "main")
	f.manager.mu.Lock()
	r := f.manager.runs[pod.UID]
	f.manager.mu.Unlock()
	f.halt() // first, so that the controller does not record at the same time
	f.manager.draining.Store(true)
	if err := f.manager.recordDrain(r); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(shim, unix.SIGTERM); err != nil { // that of the drain, or of the shutdown
		t.Fatal(err)
	}
	f.run()
	eventually(t, func() bool { return contentOf(started) == "main\nmain\n" })
}

// TestPod_deletedInEachState: a pod deleted in any state leaves nothing.
func TestPod_deletedInEachState(t *testing.T) {
	loop := shell("main", nap(5031))
	cases := map[string]struct {
		pod   *corev1.Pod
		mount error
		state func(*corev1.Pod) bool
	}{
		"waiting for volumes": {newPod("a", corev1.RestartPolicyAlways, loop), volumes.ErrWaiting, func(p *corev1.Pod) bool {
			return condition(p, corev1.PodReadyToStartContainers).Reason == "WaitingForVolumes"
		}},
		"failing to mount": {newPod("a", corev1.RestartPolicyAlways, loop), errors.New("no disk"), hasPhase(corev1.PodPending)},
		"initializing": {func() *corev1.Pod {
			pod := newPod("a", corev1.RestartPolicyAlways, loop)
			pod.Spec.InitContainers = []corev1.Container{shell("first", nap(5031))}
			return pod
		}(), nil, func(p *corev1.Pod) bool {
			return len(p.Status.InitContainerStatuses) == 1 && p.Status.InitContainerStatuses[0].State.Running != nil
		}},
		"running": {newPod("a", corev1.RestartPolicyAlways, loop), nil, hasPhase(corev1.PodRunning)},
		"waiting to be restarted": {newPod("a", corev1.RestartPolicyAlways, shell("main", "exit 1")), nil, func(p *corev1.Pod) bool {
			waiting := p.Status.ContainerStatuses[0].State.Waiting
			return waiting != nil && waiting.Reason == "CrashLoopBackOff"
		}},
		"succeeded": {newPod("a", corev1.RestartPolicyNever, shell("main", "exit 0")), nil, hasPhase(corev1.PodSucceeded)},
		"without a command that exists": {newPod("a", corev1.RestartPolicyAlways, corev1.Container{Name: "main", Command: []string{"/no/such"}}), nil, func(p *corev1.Pod) bool {
			last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated
			return last != nil && last.ExitCode == 127
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.volumes.fail(c.mount, nil)
			f.run()
			f.apply(c.pod)
			f.until("a", func(p *corev1.Pod) bool { return p != nil && len(p.Status.ContainerStatuses) > 0 && c.state(p) })
			f.delete("a")
			f.until("a", isGone)
			if f.volumes.tookAway(c.pod.UID) == 0 {
				t.Error("the volumes were not taken away")
			}
			if left, err := os.ReadDir(filepath.Join(f.root, "pods")); err == nil && len(left) != 0 {
				t.Errorf("left: %v", left)
			}
			if processes(t, nap(5031)) != 0 {
				t.Error("a process is left")
			}
			eventually(t, func() bool { return f.runs() == 0 })
		})
	}
}

// TestPod_whoseObjectIsMissing: the store was restored, or the object was removed
// by force.
func TestPod_whoseObjectIsMissing(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%t", restart), func(t *testing.T) {
			f := newFixture(t)
			f.run()
			pod := newPod("a", corev1.RestartPolicyAlways, shell("main", nap(5032)))
			f.apply(pod)
			f.until("a", hasPhase(corev1.PodRunning))
			if restart {
				f.halt()
			}
			if err := f.store.Update(func(tx *store.Tx) error { return tx.Pods().Delete("default/a") }); err != nil {
				t.Fatal(err)
			}
			if restart {
				f.run()
			}
			eventually(t, func() bool { return f.volumes.tookAway(pod.UID) == 1 && processes(t, nap(5032)) == 0 })
			eventually(t, func() bool {
				left, err := os.ReadDir(filepath.Join(f.root, "pods"))
				return err == nil && len(left) == 0
			})
		})
	}
}

func TestPod_whoseVolumesCannotBeTakenAwayStays(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.apply(newPod("a", corev1.RestartPolicyAlways, shell("main", nap(5033))))
	f.until("a", hasPhase(corev1.PodRunning))
	f.volumes.fail(nil, errors.New("target is busy"))
	f.delete("a")
	eventually(t, func() bool { return f.set.Queue(ControllerName).State("default/a").Attempts > 1 })
	if f.pod("a") == nil || processes(t, nap(5033)) != 0 {
		t.Error("the object is gone, or the container is not")
	}
	f.volumes.fail(nil, nil)
	f.set.Queue(ControllerName).Add("default/a")
	f.until("a", isGone)
}

// TestIdle_schedulesNothing: no thread of a host with running pods is scheduled.
func TestIdle_schedulesNothing(t *testing.T) {
	f := newFixture(t)
	f.run()
	for i := range 3 {
		f.apply(newPod("a"+strconv.Itoa(i), corev1.RestartPolicyAlways, shell("main", "exec sleep 5034")))
	}
	var shims []int
	for i := range 3 {
		pod := f.until("a"+strconv.Itoa(i), hasPhase(corev1.PodRunning))
		shims = append(shims, f.pid(pod, "main"))
	}
	time.Sleep(2 * time.Second) // until the runtime is idle
	count := func() int {
		total := 0
		for _, shim := range shims {
			total += switches(t, shim)
		}
		return total
	}
	// This test's own sleep and the runtime's monitor are among these; code that polls
	// each tenth of a second would alone be 30. The runtime collects garbage now and
	// then, which wakes its workers, and a slow machine is not idle after 2 s: what
	// polls is there in every window.
	host, shim, written := math.MaxInt, math.MaxInt, true
	for window := 0; window < 10 && (host > 20 || shim > 0 || written); window++ {
		hostBefore, shimBefore, version := switches(t, os.Getpid()), count(), f.version()
		time.Sleep(3 * time.Second)
		host = min(host, switches(t, os.Getpid())-hostBefore)
		shim = min(shim, count()-shimBefore)
		written = written && f.version() != version
	}
	if host > 20 {
		t.Errorf("the host woke %d times in the quietest 3 s", host)
	}
	if shim > 0 {
		t.Errorf("the shims woke %d times in the quietest 3 s", shim)
	}
	if written {
		t.Error("something was written in each 3 s")
	}
}

func (f *fixture) version() (version uint64) {
	_ = f.store.View(func(tx *store.Tx) error {
		version = tx.Version()
		return nil
	})
	return version
}

// runs counts the runs of the manager.
func (f *fixture) runs() int {
	f.manager.mu.Lock()
	defer f.manager.mu.Unlock()
	return len(f.manager.runs)
}

// contentOf is "" for a file that does not exist.
func contentOf(name string) string {
	data, _ := os.ReadFile(name)
	return string(data)
}

// switches counts the context switches of a process's threads.
func switches(t *testing.T, pid int) int {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(names) == 0 {
		t.Fatalf("process %d: %v", pid, err)
	}
	total := 0
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if text, found := strings.CutPrefix(line, "voluntary_ctxt_switches:"); found {
				n, err := strconv.Atoi(strings.TrimSpace(text))
				if err != nil {
					t.Fatal(err)
				}
				total += n
			}
		}
	}
	return total
}
