package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// limitOfTest is the least time that a test waits for an expected event.
const limitOfTest = 2 * time.Minute

// afterWork is the time after which a host has released the memory of its last work.
const afterWork = 12 * time.Second

const echoPod = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: none, command: [echo, hello]}
`

const sleepingPod = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: NAME}
spec:
  storageClassName: idle
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: none
    command: [sleep, infinity]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: NAME}}]
---
`

const idleClass = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: idle}
provisioner: local.holdfast.dev
---
`

// phase is that of a pod in the default namespace, "" if there is none.
func (m *machine) phase(pod string) corev1.PodPhase {
	if found := get[*corev1.Pod](m, "pods", "default", pod); found != nil {
		return found.Status.Phase
	}
	return ""
}

// switches counts the voluntary context switches of a process's threads
// (proc_pid_status(5)): each wakeup adds one.
func switches(t *testing.T, pid int) (sum int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		_, rest, _ := strings.Cut(string(data), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(rest, "\n")
		count, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		sum += count
	}
	return sum
}

// children are the processes that a process started.
func children(t *testing.T, pid int) (found []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for word := range strings.FieldsSeq(string(data)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			found = append(found, child)
		}
	}
	return found
}

// asleep waits until running work has ended: the threads of a process have not
// been woken for some seconds.
func (m *machine) asleep(pid int) {
	m.t.Helper()
	m.until("the processes sleep", limitOfTest, func() bool {
		before := switches(m.t, pid)
		time.Sleep(3 * time.Second)
		return switches(m.t, pid)-before <= 3
	})
}

// Idle costs nothing: a host with volumes that are in use, pods that run, one
// that cannot start and one that was held back is not woken by anything of its
// own. What is allowed is less than one timer of a second would need.
func TestIdle_theHostSleeps(t *testing.T) {
	m := newMachine(t)
	m.start()
	manifest := idleClass
	for i := range 5 {
		manifest += strings.ReplaceAll(sleepingPod, "NAME", fmt.Sprintf("p%d", i))
	}
	m.apply(manifest)
	m.apply(strings.ReplaceAll(echoPod, "NAME", "over"))
	m.apply(strings.ReplaceAll(strings.ReplaceAll(sleepingPod, "NAME", "stuck"), "storageClassName: idle", "storageClassName: missing"))
	for i := range 5 {
		m.until("the pods run", limitOfTest, func() bool { return m.phase(fmt.Sprintf("p%d", i)) == corev1.PodRunning })
	}
	m.until("the pod has ended", limitOfTest, func() bool { return m.phase("over") == corev1.PodSucceeded })
	m.client.Close()
	time.Sleep(afterWork)
	m.asleep(m.host.Process.Pid)

	const length, allowed = 20 * time.Second, 15
	shims := children(t, m.host.Process.Pid)
	if len(shims) < 5 {
		t.Fatalf("the host has %d processes; want one for each of five pods", len(shims))
	}
	// Go collects garbage every two minutes, which wakes its workers: what polls is
	// there in every window.
	woken, ofShims := allowed+1, 0
	for window := 0; window < 4 && (woken > allowed || ofShims > allowed); window++ {
		before, beforeShims := switches(t, m.host.Process.Pid), 0
		for _, pid := range shims {
			beforeShims += switches(t, pid)
		}
		time.Sleep(length)
		woken, ofShims = switches(t, m.host.Process.Pid)-before, -beforeShims
		for _, pid := range shims {
			ofShims += switches(t, pid)
		}
		t.Logf("in %v the host was woken %d times, %d processes of pods %d times", length, woken, len(shims), ofShims)
	}
	if woken > allowed || ofShims > allowed {
		t.Errorf("it does not sleep: %d of the host, %d of the pods in %v; want at most %d", woken, ofShims, length, allowed)
	}
	claims := []string{"p0", "p1", "p2", "p3", "p4", "stuck"}
	m.clear(append([]string{"over"}, claims...), claims)
	if left := append(m.mounts(), m.loops()...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
