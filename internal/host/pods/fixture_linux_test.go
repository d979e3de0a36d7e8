package pods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// TestMain is a shim when a manager starts this test's own binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workload.ChildCommand {
		os.Exit(workload.Child())
	}
	goleak.VerifyTestMain(m)
}

// timeout is how long a test waits for a condition.
const timeout = time.Minute

// fakeVolumes mounts each volume of a pod as a directory.
type fakeVolumes struct {
	root string

	mu       sync.Mutex
	mounted  map[types.UID]int // number of mounts
	removed  []types.UID
	mountErr error
	undoErr  error
}

func (f *fakeVolumes) MountPod(_ context.Context, pod *corev1.Pod) (map[string]volumes.Mounted, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mountErr != nil {
		return nil, f.mountErr
	}
	f.mounted[pod.UID]++
	mounted := map[string]volumes.Mounted{}
	for _, volume := range pod.Spec.Volumes {
		directory := filepath.Join(f.root, "volume-"+volume.Name)
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return nil, err
		}
		mounted[volume.Name] = volumes.Mounted{Path: directory}
	}
	return mounted, nil
}

func (f *fakeVolumes) UnmountPod(_ context.Context, pod *corev1.Pod) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.undoErr != nil {
		return f.undoErr
	}
	f.removed = append(f.removed, pod.UID)
	delete(f.mounted, pod.UID)
	return os.RemoveAll(filepath.Join(f.root, "pods", string(pod.UID), "containers"))
}

func (f *fakeVolumes) fail(mount, undo error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mountErr, f.undoErr = mount, undo
}

// asked is the number of times that a pod's volumes were mounted.
func (f *fakeVolumes) asked(uid types.UID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mounted[uid]
}

func (f *fakeVolumes) tookAway(uid types.UID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(f.removed), func(u types.UID) bool { return u != uid }))
}

// fixture is a host of pods that can be stopped and started again.
type fixture struct {
	t       *testing.T
	root    string
	boot    string
	volumes *fakeVolumes
	store   *store.Store
	points  *failpoint.Set
	// ready, if given, is Options.Ready.
	ready func()

	manager *Manager
	set     *reconcile.Set
	stop    func()

	mu      sync.Mutex
	notices []journal.Notice
	skew    time.Duration // of the manager's clock
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("needs root: run make test")
	}
	return newFixtureAt(t, t.TempDir())
}

func newFixtureAt(t *testing.T, root string) *fixture {
	t.Helper()
	opened, err := store.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, root: root, boot: "boot-1", store: opened, volumes: &fakeVolumes{root: root, mounted: map[types.UID]int{}}}
	t.Cleanup(func() {
		f.halt()
		f.killAll()
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// run starts the host, again after halt.
func (f *fixture) run() {
	f.t.Helper()
	f.manager = New(Options{
		Store: f.store, Volumes: f.volumes, Paths: claim.Paths{Root: f.root}, BootID: f.boot, NodeName: "node",
		Requeue: func(key string) { f.set.Queue(ControllerName).Add(key) }, Failpoints: f.points, Ready: f.ready,
		Record: func(n journal.Notice) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.notices = append(f.notices, n)
		},
		Now: func() time.Time {
			f.mu.Lock()
			defer f.mu.Unlock()
			return time.Now().Add(f.skew)
		},
	})
	f.set = reconcile.NewSet(f.store, f.manager.Controller())
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := f.set.Run(ctx); err != nil {
			f.t.Error(err)
		}
	})
	f.stop = func() {
		cancel()
		group.Wait()
		if err := f.manager.Close(); err != nil {
			f.t.Error(err)
		}
	}
}

// halt ends the host; its containers continue.
func (f *fixture) halt() {
	if f.stop != nil {
		f.stop()
		f.stop = nil
	}
}

func (f *fixture) killAll() {
	entries, _ := filepath.Glob(filepath.Join(f.root, "pods", "*", runDirectory, "*", "lock"))
	for _, entry := range entries {
		shim := workload.Shim{State: filepath.Dir(entry), Logs: f.root, BootID: f.boot}
		for {
			_, process, err := shim.Inspect(workload.ReasonError)
			if errors.Is(err, workload.ErrBusy) {
				time.Sleep(workload.BusyPause)
				continue
			}
			if err != nil || process == nil {
				break
			}
			_ = process.Signal(9)
			process.Wait()
			_ = process.Close()
		}
	}
}

func shell(name, script string) corev1.Container {
	return corev1.Container{Name: name, Command: []string{"sh", "-c", script}, VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/holdfast-test"}}}
}

func newPod(name string, policy corev1.RestartPolicy, containers ...corev1.Container) *corev1.Pod {
	grace := int64(5)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			RestartPolicy: policy, Containers: containers, TerminationGracePeriodSeconds: &grace,
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}

func (f *fixture) apply(pod *corev1.Pod) {
	f.t.Helper()
	if err := f.store.Update(func(tx *store.Tx) error { return tx.Pods().Put(store.KeyOf(pod), pod.DeepCopy()) }); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) pod(name string) (pod *corev1.Pod) {
	f.t.Helper()
	err := f.store.View(func(tx *store.Tx) (err error) {
		pod, err = tx.Pods().Get(store.Key("default", name))
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return pod
}

func (f *fixture) delete(name string) {
	f.t.Helper()
	err := f.store.Update(func(tx *store.Tx) error {
		pod, err := tx.Pods().Get(store.Key("default", name))
		if err != nil || pod == nil {
			return fmt.Errorf("no pod: %w", err)
		}
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		return tx.Pods().Put(store.KeyOf(pod), pod)
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// until waits for a pod that matches; nil when it is gone.
func (f *fixture) until(name string, matches func(*corev1.Pod) bool) *corev1.Pod {
	f.t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		pod := f.pod(name)
		if matches(pod) {
			return pod
		}
		if time.Now().After(deadline) {
			if pod != nil {
				f.t.Fatalf("the pod is %+v", pod.Status)
			}
			f.t.Fatal("the pod is gone")
		}
	}
}

func hasPhase(phase corev1.PodPhase) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod != nil && pod.Status.Phase == phase }
}

func isGone(pod *corev1.Pod) bool { return pod == nil }

// pid is the shim's of a container, once the manager knows it.
func (f *fixture) pid(pod *corev1.Pod, container string) (pid int) {
	f.t.Helper()
	eventually(f.t, func() bool {
		f.manager.mu.Lock()
		r := f.manager.runs[pod.UID]
		f.manager.mu.Unlock()
		if r == nil {
			return false
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if known := r.containers[container]; known != nil {
			pid = known.state.PID
		}
		return pid != 0
	})
	return pid
}

func (f *fixture) reasons() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []string
	for _, n := range f.notices {
		list = append(list, n.Reason)
	}
	return strings.Join(list, " ")
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// runVariable is the number of the test's process, for the hosts that it starts.
const runVariable = "HOLDFAST_PODS_RUN"

// nap is a command that sleeps, distinct from those of other runs of these tests.
func nap(seconds int) string {
	run := os.Getenv(runVariable)
	if run == "" {
		run = strconv.Itoa(os.Getpid())
	}
	return fmt.Sprintf("sleep %d.%07s", seconds, run)
}

// processes counts those with a command line that contains the text.
func processes(t *testing.T, text string) int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err == nil && strings.Contains(strings.ReplaceAll(string(data), "\x00", " "), text) {
			count++
		}
	}
	return count
}

func eventually(t *testing.T, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}
