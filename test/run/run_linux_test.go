// Package run_test proves `holdfast run` with the built command, as a user has
// it: real loop devices, real mounts, real processes.
package run_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
	built "github.com/holdfast-csi/holdfast/test/binary"
)

// examples is where the manifests of the repository are.
const examples = "../../examples/"

var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	directory, err := os.MkdirTemp("", "holdfast-run")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(directory) }()
	if binary, err = built.Build(context.Background(), directory, "holdfast"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Tests that run in parallel wait for the disk half of their time; a -parallel of
	// the command line, which Run reads, counts.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.NumCPU())); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// machine is a root directory that is checked for leaks at the end of the test.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run make test")
	}
	// A short path: it has sockets, and the name of a test can be long.
	directory, err := os.MkdirTemp("", "hf") //nolint:usetesting // a socket has no room in the path of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, root: filepath.Join(directory, "r")}
	t.Cleanup(func() {
		m.isIdle()
		if !t.Failed() {
			if err := os.RemoveAll(directory); err != nil {
				t.Error(err)
			}
		}
	})
	return m
}

type result struct {
	code           int
	stdout, stderr string
	killed         bool
}

func (m *machine) command(arguments ...string) *exec.Cmd {
	return exec.Command(binary, append([]string{"run", "--root", m.root}, arguments...)...)
}

// run runs to the end. env is added to the environment.
func (m *machine) run(env []string, arguments ...string) result {
	m.t.Helper()
	command := m.command(arguments...)
	command.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	status, _ := command.ProcessState.Sys().(syscall.WaitStatus)
	return result{command.ProcessState.ExitCode(), stdout.String(), stderr.String(), status.Signaled()}
}

func (m *machine) succeeds(arguments ...string) result {
	m.t.Helper()
	r := m.run(nil, arguments...)
	if r.code != 0 {
		m.t.Fatalf("run %v ends with %d\nstdout: %s\nstderr: %s", arguments, r.code, r.stdout, r.stderr)
	}
	return r
}

// write makes a manifest.
func (m *machine) write(text string) string {
	m.t.Helper()
	file := filepath.Join(m.t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return file
}

// isIdle checks that mounts, devices and the pods' files are gone. Volumes may exist.
// The kernel may free them with a delay.
func (m *machine) isIdle() {
	m.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		left := m.left()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			m.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			return
		}
	}
}

func (m *machine) left() []string {
	m.t.Helper()
	left := append(nodetest.MountsBelow(m.t, m.root), nodetest.LoopsBelow(m.t, m.root)...)
	for _, directory := range []string{"pods", "plugins/kubernetes.io", "plugins_registry"} {
		entries, err := os.ReadDir(filepath.Join(m.root, directory))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			m.t.Fatal(err)
		}
		for _, entry := range entries {
			left = append(left, filepath.Join(directory, entry.Name()))
		}
	}
	return left
}

// hasVolumes checks the number of volumes in the pool, and that no remains of others
// exist.
func (m *machine) hasVolumes(want int) {
	m.t.Helper()
	for kind, number := range map[string]int{"volumes": want, "snapshots": 0, "trash": 0} {
		entries, err := os.ReadDir(filepath.Join(m.root, "pool", kind))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			m.t.Fatal(err)
		}
		if len(entries) != number {
			m.t.Errorf("the pool has %d %s, not %d: %v", len(entries), kind, number, entries)
		}
	}
}

func TestQuickstart_keepsTheClaimAndNotTheScratch(t *testing.T) {
	m := newMachine(t)
	quickstart := examples + "quickstart.yaml"
	for runs := 1; runs <= 2; runs++ {
		r := m.succeeds("-f", quickstart)
		if got := strings.Count(r.stdout, "written at"); got != runs {
			t.Errorf("run %d: the log has %d lines:\n%s", runs, got, r.stdout)
		}
		for _, want := range []string{" /data ext4 rw,", " /scratch ext4 rw,", "== /scratch\nlost+found\ntemporary\n"} {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("run %d: %q is not in\n%s", runs, want, r.stdout)
			}
		}
		for _, want := range []string{"spec.containers[0].image (busybox)", "claim default/quickstart: stage ", "inline volume scratch: publish "} {
			if !strings.Contains(r.stderr, want) {
				t.Errorf("run %d: %q is not in\n%s", runs, want, r.stderr)
			}
		}
		m.isIdle()
		m.hasVolumes(1)
	}
	r := m.succeeds("--delete", "-f", quickstart)
	if r.stdout != "persistentvolumeclaim \"default/quickstart\" deleted\n" {
		t.Errorf("deleting says %q", r.stdout)
	}
	m.hasVolumes(0)
	if r := m.succeeds("--delete", "-f", quickstart); !strings.Contains(r.stdout, "not found") {
		t.Errorf("deleting again says %q", r.stdout)
	}
}

func TestClone_hasTheDataOfItsSource(t *testing.T) {
	m := newMachine(t)
	m.succeeds("-f", examples+"quickstart.yaml")
	r := m.succeeds("-f", examples+"clone.yaml")
	if !strings.Contains(r.stdout, "written at") || !strings.Contains(r.stdout, "written to the copy\n") || !strings.Contains(r.stdout, "2.0G") {
		t.Errorf("the copy has\n%s", r.stdout)
	}
	if r := m.succeeds("-f", examples+"quickstart.yaml"); strings.Contains(r.stdout, "copy") {
		t.Errorf("the source has the data of the copy:\n%s", r.stdout)
	}
	m.succeeds("--delete", "-f", examples+"quickstart.yaml", "-f", examples+"clone.yaml")
	m.hasVolumes(0)
}

func TestBlock_keepsWritesToTheDevice(t *testing.T) {
	m := newMachine(t)
	first := m.succeeds("-f", examples+"block.yaml")
	if !strings.Contains(first.stdout, "before: \nafter: written at") || !strings.Contains(first.stdout, "size: 67108864\n") {
		t.Errorf("the first run says\n%s", first.stdout)
	}
	if second := m.succeeds("-f", examples+"block.yaml"); !strings.Contains(second.stdout, "before: written at") {
		t.Errorf("the second run says\n%s", second.stdout)
	}
	m.succeeds("--delete", "-f", examples+"block.yaml")
	m.hasVolumes(0)
}

// pod is a manifest with a class, a claim of a size and a pod that runs a
// script with the claim at /data; spec is more of the pod's spec.
func pod(size, script, spec string) string {
	return fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: local.holdfast.dev
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: local
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: %s}}
---
apiVersion: v1
kind: Pod
metadata: {name: test}
spec:
  restartPolicy: Never
%s
  containers:
    - name: main
      command: [sh, -c, %q]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes:
    - name: data
      persistentVolumeClaim: {claimName: data}
`, size, spec, script)
}

func TestRun_growsAClaimWhoseRequestGrew(t *testing.T) {
	m := newMachine(t)
	script := "touch /data/x; df --output=size -BM /data | tail -1"
	small := m.succeeds("-f", m.write(pod("64Mi", script, "")))
	large := m.succeeds("-f", m.write(pod("256Mi", script, "")))
	var before, after int
	if _, err := fmt.Sscanf(small.stdout, "%dM", &before); err != nil {
		t.Fatal(err, small.stdout)
	}
	if _, err := fmt.Sscanf(large.stdout, "%dM", &after); err != nil {
		t.Fatal(err, large.stdout)
	}
	if after < 3*before {
		t.Errorf("the filesystem has %d MiB, before it had %d", after, before)
	}
	if !strings.Contains(large.stderr, "claim default/data: expand 64Mi → 256Mi") {
		t.Errorf("the expansion is not reported:\n%s", large.stderr)
	}
	r := m.run(nil, "-f", m.write(pod("64Mi", script, "")))
	if r.code != 1 || !strings.Contains(r.stderr, "a volume cannot shrink: it has 256Mi") {
		t.Errorf("shrinking: code %d, %s", r.code, r.stderr)
	}
	m.succeeds("--delete", "-f", m.write(pod("256Mi", script, "")))
}

func TestRun_passesTheExitCodeOn(t *testing.T) {
	m := newMachine(t)
	file := m.write(pod("16Mi", "exit 42", ""))
	if r := m.run(nil, "-f", file); r.code != 42 || strings.Contains(r.stderr, "exit status") {
		t.Errorf("code %d, %s", r.code, r.stderr)
	}
	m.succeeds("--delete", "-f", file)
}

func TestRun_ownershipAndUser(t *testing.T) {
	m := newMachine(t)
	file := m.write(pod("16Mi", "id -u; touch /data/mine; stat -c %g:%a /data; stat -c %u:%g /data/mine",
		"  securityContext: {runAsUser: 4001, runAsGroup: 4002, fsGroup: 4003}"))
	if r := m.succeeds("-f", file); r.stdout != "4001\n4003:2775\n4001:4003\n" {
		t.Errorf("got %q", r.stdout)
	}
	m.succeeds("--delete", "-f", file)
}

func TestRun_initContainersAndPrefixes(t *testing.T) {
	m := newMachine(t)
	file := m.write(`
apiVersion: v1
kind: Pod
metadata: {name: several}
spec:
  restartPolicy: Never
  initContainers:
    - {name: first, command: [sh, -c, 'echo $(GREETING) > /shared/x'], env: [{name: GREETING, value: hello}], volumeMounts: [{name: shared, mountPath: /shared}]}
  containers:
    - {name: one, command: [cat, /shared/x], volumeMounts: [{name: shared, mountPath: /shared}]}
    - {name: two, command: [sh, -c, 'echo err >&2; exit 3']}
  volumes:
    - {name: shared, emptyDir: {}}
`)
	r := m.run(nil, "-f", file)
	if r.code != 3 || r.stdout != "[one] hello\n" || !strings.Contains(r.stderr, "[two] err\n") {
		t.Errorf("code %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
}

// start starts a run and waits for the first line of its workload.
func (m *machine) start(file string) *exec.Cmd {
	m.t.Helper()
	command := m.command("-f", file)
	stdout, err := command.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	command.Stderr = &bytes.Buffer{}
	if err := command.Start(); err != nil {
		m.t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 64)); err != nil {
		m.t.Fatal(err)
	}
	return command
}

func TestRun_signalsReachTheWorkloadAndEverythingIsReleased(t *testing.T) {
	m := newMachine(t)
	file := m.write(pod("16Mi", "trap 'exit 5' INT; echo ready; while :; do sleep 0.02; done", ""))
	command := m.start(file)
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	if code := command.ProcessState.ExitCode(); code != 5 {
		t.Errorf("exit code %d", code)
	}
	want := fmt.Sprintf("interrupted; PersistentVolumeClaim \"default/data\" stays with its data; to delete: 'holdfast run -f %s --root %s --delete'\n", file, m.root)
	if stderr := fmt.Sprint(command.Stderr); !strings.Contains(stderr, want) {
		t.Errorf("%s\nwant %s", stderr, want)
	}
	m.isIdle()
	m.succeeds("--delete", "-f", file)
}

func TestRun_oneAtATime(t *testing.T) {
	m := newMachine(t)
	file := m.write(pod("16Mi", "echo ready; while :; do sleep 0.02; done", ""))
	command := m.start(file)
	r := m.run(nil, "-f", file)
	want := fmt.Sprintf("holdfast: the host's store %s/host.db: in use by another process (process %d): wait until it ends, or give this one another directory with --root\n",
		m.root, command.Process.Pid)
	if r.code != 1 || r.stderr != want {
		t.Errorf("code %d, %q, want %q", r.code, r.stderr, want)
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	m.succeeds("--delete", "-f", file)
}

// A claim that waits for a consumer gets its volume, also without a pod in the
// files.
func TestRun_doesNotWaitForTheFirstConsumer(t *testing.T) {
	m := newMachine(t)
	delayed := replaced(t, "allowVolumeExpansion: true", "allowVolumeExpansion: true\nvolumeBindingMode: WaitForFirstConsumer")
	m.succeeds("-f", m.write(delayed[:strings.LastIndex(delayed, "---")]))
	m.hasVolumes(1)
	m.succeeds("-f", m.write(delayed))
	m.hasVolumes(1)
	m.succeeds("--delete", "-f", m.write(delayed))
	m.hasVolumes(0)
}

// A run of other pods also releases the volumes of a killed run.
func TestRun_releasesTheVolumesOfAKilledRun(t *testing.T) {
	m := newMachine(t)
	file := m.write(pod("16Mi", "echo ready; while :; do sleep 0.02; done", ""))
	command := m.start(file)
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	other := m.succeeds("-f", m.write("apiVersion: v1\nkind: Pod\nmetadata: {name: other}\nspec: {containers: [{name: main, command: [echo, done]}]}\n"))
	if other.stdout != "done\n" {
		t.Errorf("the other pod says %q", other.stdout)
	}
	m.isIdle()
	m.succeeds("--delete", "-f", file)
	m.hasVolumes(0)
}

func TestRun_needsRoot(t *testing.T) {
	m := newMachine(t)
	// Where any user may read and execute.
	if err := os.Chmod(filepath.Dir(binary), 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(binary, "run", "--root", m.root, "-f", "-")
	command.Stdin = strings.NewReader(pod("16Mi", "true", ""))
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	output, err := command.CombinedOutput()
	if err == nil || string(output) != "holdfast: this command mounts filesystems and needs root: run it with sudo\n" {
		t.Errorf("%v, %q", err, output)
	}
}
