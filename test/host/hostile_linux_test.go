package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// heldPod is a pod whose workload is the test.
func heldPod(name, claim string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {holdfast.dev/holder: test}}
spec:
  containers: [{name: main, image: none, command: ["true"], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
`, name, claim)
}

const firstClass = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: first}
provisioner: local.holdfast.dev
parameters: {csi.storage.k8s.io/fstype: ext4}
`

// running waits until a pod runs.
func (m *machine) running(name string) *corev1.Pod {
	m.t.Helper()
	var pod *corev1.Pod
	m.until(name+" runs", 30*time.Second, func() bool {
		pod = get[*corev1.Pod](m, "pods", "default", name)
		return pod != nil && pod.Status.Phase == corev1.PodRunning
	})
	return pod
}

func (m *machine) claimOf(name string) *corev1.PersistentVolumeClaim {
	m.t.Helper()
	return get[*corev1.PersistentVolumeClaim](m, "persistentvolumeclaims", "default", name)
}

// content is the file of a claim's volume, as a pod sees it.
func (m *machine) content(pod *corev1.Pod, claim string) string {
	m.t.Helper()
	return filepath.Join(m.root, "pods", string(pod.UID), "volumes", "kubernetes.io~csi", m.claimOf(claim).Spec.VolumeName, "mount", "content")
}

// used makes a claim with a pod and gives its file content.
func (m *machine) used(claim, pod string) (file string) {
	m.t.Helper()
	m.apply(firstClass + "---" + claimText(claim, "first", 16, "") + "---" + heldPod(pod, claim))
	file = m.content(m.running(pod), claim)
	if err := writeSynced(file, "of "+claim); err != nil {
		m.t.Fatal(err)
	}
	return file
}

func (m *machine) has(file, claim string) {
	m.t.Helper()
	if data, err := os.ReadFile(file); err != nil || string(data) != "of "+claim {
		m.t.Errorf("the volume of %s has %q, %v\n%s", claim, data, err, m.tail())
	}
}

// clear deletes pods and claims, and waits until they and their volumes are gone.
func (m *machine) clear(pods, claims []string) {
	m.t.Helper()
	for kind, names := range map[string][]string{"pods": pods, "persistentvolumeclaims": claims} {
		for _, name := range names {
			if _, err := m.client.Delete(m.t.Context(), m.kind(kind), "default", name, api.DeleteOptions{}); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	m.until("everything is gone", 30*time.Second, func() bool {
		for _, name := range claims {
			if m.claimOf(name) != nil {
				return false
			}
		}
		return len(m.loops()) == 0
	})
}

// events are the messages about an object, in one text.
func (m *machine) events(kind, name string) string {
	m.t.Helper()
	output, _ := exec.Command(binary, "describe", "--root", m.root, kind, name).CombinedOutput() // it may fail: its text is inspected
	return string(output)
}

// fails runs the command, which has to fail, and returns its output.
func (m *machine) fails(arguments ...string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), limitOfTest)
	defer cancel()
	output, err := exec.CommandContext(ctx, binary, append(arguments, "--root", m.root)...).CombinedOutput()
	failure, ok := errors.AsType[*exec.ExitError](err)
	if !ok || failure.ExitCode() != 1 {
		m.t.Errorf("holdfast %s ends with %v, want exit code 1", strings.Join(arguments, " "), err)
	}
	return string(output)
}

func (m *machine) succeeds(arguments ...string) string {
	m.t.Helper()
	output, err := exec.CommandContext(m.t.Context(), binary, append(arguments, "--root", m.root)...).CombinedOutput()
	if err != nil {
		m.t.Errorf("holdfast %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return string(output)
}

func says(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in: %s", want, text)
		}
	}
}

// crashed reports whether a text is of a program that did not end on purpose.
func crashed(text string) bool {
	return strings.Contains(text, "goroutine ") || strings.Contains(text, "panic:")
}

func TestTwoHosts_theSecondSaysWhoHasTheRoot(t *testing.T) {
	m := newMachine(t)
	m.start()
	file := m.used("c", "p")
	said := m.fails("host")
	says(t, said, m.root, "in use by another process", fmt.Sprintf("process %d", m.host.Process.Pid))
	if _, err := m.client.Version(t.Context()); err != nil {
		t.Errorf("the first does not answer any more: %v", err)
	}
	m.has(file, "c")
	m.clear([]string{"p"}, []string{"c"})
}

// ownFilesystem mounts a new filesystem at the root.
func (m *machine) ownFilesystem(megabytes int) {
	m.t.Helper()
	if err := os.MkdirAll(m.root, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := syscall.Mount("holdfast-test", m.root, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0755", megabytes)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) remount(flags uintptr) {
	m.t.Helper()
	if err := syscall.Mount("", m.root, "", syscall.MS_REMOUNT|flags, ""); err != nil {
		m.t.Fatal(err)
	}
}

func TestReadOnlyRoot_atStartIsNamed(t *testing.T) {
	m := newMachine(t)
	m.ownFilesystem(64)
	m.start()
	m.stop()
	m.remount(syscall.MS_RDONLY)
	said := m.fails("host")
	says(t, said, m.root, "read-only file system")
	if crashed(said) {
		t.Error(said)
	}
	m.remount(0)
	m.start()
}

// ownDisk mounts a new disk at the root, with a filesystem that becomes
// read-only on an error. fail causes that error; bringBack restores the disk as an
// administrator would.
func (m *machine) ownDisk() (fail, bringBack func()) {
	m.t.Helper()
	image := m.root + ".img"
	run := func(name string, arguments ...string) {
		m.t.Helper()
		if output, err := exec.CommandContext(m.t.Context(), name, arguments...).CombinedOutput(); err != nil {
			m.t.Fatalf("%s %v: %v\n%s", name, arguments, err, output)
		}
	}
	mount := func() { run("mount", "-o", "loop,errors=remount-ro", image, m.root) }
	if err := os.MkdirAll(m.root, 0o755); err != nil {
		m.t.Fatal(err)
	}
	run("truncate", "--size=200M", image)
	run("mkfs.ext4", "-q", image)
	mount()
	return func() { run("mount", "-o", "remount,abort", m.root) }, func() {
		m.loseMounts()
		// Its exit code 1 is that errors were corrected.
		output, err := exec.CommandContext(m.t.Context(), "fsck.ext4", "-p", image).CombinedOutput()
		if failure, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || failure.ExitCode() != 1) {
			m.t.Fatalf("fsck: %v\n%s", err, output)
		}
		mount()
	}
}

// loseMounts removes everything that a reboot does: the mounts and the loop
// devices below the root.
func (m *machine) loseMounts() {
	m.t.Helper()
	points := m.mounts()
	for i := len(points) - 1; i >= 0; i-- {
		var err error
		// The mount namespaces of processes go after them.
		m.until(points[i]+" is not busy", limitOfTest, func() bool {
			err = syscall.Unmount(points[i], 0)
			return !errors.Is(err, syscall.EBUSY)
		})
		if err != nil && !errors.Is(err, syscall.EINVAL) {
			m.t.Fatalf("unmount %s: %v", points[i], err)
		}
		if points[i] == m.root {
			return // with nothing below: its loop device goes with it
		}
		if i == 0 || points[i-1] == m.root {
			nodetest.DetachLoopsBelow(m.t, m.root)
		}
	}
}

func TestReadOnlyRoot_underARunningHost(t *testing.T) {
	m := newMachine(t)
	fail, bringBack := m.ownDisk()
	m.start()
	file := m.used("c", "p")
	fail()
	_, err := m.client.Apply(t.Context(), []manifest.File{{Name: "late", Data: []byte(claimText("late", "first", 16, ""))}}, api.ApplyOptions{})
	if err == nil || !strings.Contains(err.Error(), "read-only file system") {
		t.Errorf("apply on a read-only filesystem: %v", err)
	}
	if _, err := m.client.Version(t.Context()); err != nil {
		t.Errorf("the host does not answer any more: %v", err)
	}
	if m.claimOf("late") != nil {
		t.Error("there is a claim that could not be written")
	}
	m.has(file, "c")
	// It cannot remove its socket, and says so with its exit code.
	if err := m.host.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = m.host.Wait()
	m.host = nil
	if said := m.tail(); crashed(said) {
		t.Error(said)
	}
	bringBack()
	m.start()
	m.until("the volume is mounted again", 20*time.Second, func() bool { return fileExists(file) })
	m.has(file, "c")
	m.apply(claimText("late", "first", 16, ""))
	m.clear([]string{"p"}, []string{"c", "late"})
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// nextBoot changes the boot ID that the host reads.
func (m *machine) nextBoot() {
	m.t.Helper()
	const bootID = "/proc/sys/kernel/random/boot_id"
	id, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		m.t.Fatal(err)
	}
	file := m.root + ".boot"
	if err := os.WriteFile(file, id, 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := syscall.Mount(file, bootID, "", syscall.MS_BIND, ""); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if err := syscall.Unmount(bootID, 0); err != nil {
			m.t.Error(err)
		}
	})
}

// The machine goes down while pods run, a claim is made and another is mounted.
func TestReboot_inTheMiddleOfEverything(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.used("held", "held")
	m.apply(claimText("c", "first", 16, "") + `---
apiVersion: v1
kind: Pod
metadata: {name: process}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: none, command: [sh, -c, "echo start >> /data/starts; sync; exec sleep 1000"], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: c}}]
`)
	starts := filepath.Join(filepath.Dir(m.content(m.running("process"), "c")), "starts")
	m.until("the process started", 10*time.Second, func() bool { return lines(starts) == 1 })
	m.apply(claimText("late", "first", 16, "") + "---" + heldPod("late", "late"))
	if _, err := m.client.Delete(t.Context(), m.kind("pods"), "default", "held", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shims := m.shims()
	if len(shims) == 0 {
		t.Fatal("no process keeps the container")
	}
	m.kill()
	m.endProcesses()
	for _, pid := range shims {
		nodetest.Kill(t, pid, func(pid int) bool { return slices.Contains(m.shims(), pid) })
	}
	m.until("all processes ended", 5*time.Second, func() bool { return len(m.processes())+len(m.shims()) == 0 })
	m.loseMounts()
	m.nextBoot()
	m.start()
	m.until("the process started again", 30*time.Second, func() bool { return lines(starts) == 2 })
	late := m.content(m.running("late"), "late")
	if err := writeSynced(late, "of late"); err != nil {
		t.Error(err)
	}
	m.apply(heldPod("again", "held"))
	m.has(m.content(m.running("again"), "held"), "held")
	m.clear([]string{"process", "late", "again"}, []string{"c", "late", "held"})
	if left := m.mounts(); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

// shims are the processes that keep containers: their files are below the root.
func (m *machine) shims() (found []int) {
	m.t.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		target, err := os.Readlink(file)
		if err != nil || !strings.HasPrefix(target, m.root+"/pods/") {
			continue // it has ended, or is another's
		}
		pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
		if pid != os.Getpid() && (m.host == nil || pid != m.host.Process.Pid) && !slices.Contains(found, pid) {
			found = append(found, pid)
		}
	}
	return found
}

func lines(path string) int {
	data, _ := os.ReadFile(path) // absent: no line yet
	return strings.Count(string(data), "\n")
}

func TestFullDisk_existingVolumesContinue(t *testing.T) {
	m := newMachine(t)
	m.ownFilesystem(120)
	m.start()
	// A volume of the sort whose space is taken when it is made.
	m.apply(strings.Replace(firstClass, "{csi", "{provisioning: thick, csi", 1))
	m.apply(claimText("c", "first", 16, "") + "---" + heldPod("p", "c"))
	file := m.content(m.running("p"), "c")
	if err := writeSynced(file, "of c"); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(m.root, "ballast")
	fill(t, ballast)
	_, err := m.client.Apply(t.Context(), []manifest.File{{Name: "late", Data: []byte(claimText("late", "first", 32, "") + "---" + heldPod("late", "late"))}}, api.ApplyOptions{})
	if err != nil && !strings.Contains(err.Error(), "no space left") {
		t.Errorf("apply: %v", err)
	}
	if err == nil {
		m.until("an event reports the full disk", 20*time.Second, func() bool {
			said := m.events("pvc", "late")
			return strings.Contains(said, "no space left") || strings.Contains(said, "ResourceExhausted")
		})
	}
	m.has(file, "c")
	if err := writeSynced(file, "of c"); err != nil {
		t.Errorf("a volume that was there cannot be written: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	m.apply(claimText("late", "first", 32, "") + "---" + heldPod("late", "late"))
	m.until("late runs", 150*time.Second, func() bool {
		pod := get[*corev1.Pod](m, "pods", "default", "late")
		return pod != nil && pod.Status.Phase == corev1.PodRunning
	})
	m.clear([]string{"p", "late"}, []string{"c", "late"})
	m.stop()
	says(t, m.succeeds("host", "check"), "no problem found")
}

// fill writes until the filesystem is full.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1 << 20, 4096, 1} {
		block := make([]byte, size)
		for err == nil {
			_, err = file.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCorruptStore_isRefusedCheckedAndRepaired(t *testing.T) {
	m := newMachine(t)
	m.start()
	for i := range 3 {
		m.used(fmt.Sprintf("c%d", i), fmt.Sprintf("p%d", i))
	}
	m.stop()
	path := filepath.Join(m.root, store.FileName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for page := range slices.Chunk(data, os.Getpagesize()) {
		if bytes.Contains(page, []byte(manifest.HolderAnnotation)) {
			clear(page)
		}
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, m.fails("host"), "is damaged", "holdfast host check", "holdfast host repair", "host.db.backup")
	says(t, m.fails("host", "check"), "PROBLEM the file")
	repaired := m.succeeds("host", "repair")
	says(t, repaired, "the damaged store is kept as")
	t.Log(repaired)
	says(t, m.succeeds("host", "check"), "schema")
	m.start()
	// What no pod uses any more is unmounted, and the data are for the next pod.
	for i := range 3 {
		claim, pod := fmt.Sprintf("c%d", i), fmt.Sprintf("p%d", i)
		if lost := get[*corev1.Pod](m, "pods", "default", pod); lost != nil {
			t.Errorf("pod %s was not in the damaged part", pod)
		}
		m.apply(heldPod(pod, claim))
		m.has(m.content(m.running(pod), claim), claim)
	}
}

func TestCorruptJournal_isMovedAside(t *testing.T) {
	m := newMachine(t)
	m.start()
	file := m.used("c", "p")
	m.stop()
	path := filepath.Join(m.root, "journal.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("no journal", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	m.start()
	if _, err := os.Stat(path + ".damaged"); err != nil {
		t.Error(err)
	}
	m.has(file, "c")
	m.clear([]string{"p"}, []string{"c"})
}

func TestRemovedSocket_comesBackWithTheNextStart(t *testing.T) {
	m := newMachine(t)
	m.start()
	file := m.used("c", "p")
	socket := filepath.Join(m.root, "host.sock")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	fresh := api.DialRoot(m.root)
	defer fresh.Close()
	if _, err := fresh.Version(t.Context()); err == nil {
		t.Error("a host answers without a socket")
	} else {
		says(t, err.Error(), m.root)
	}
	m.stop()
	m.start()
	m.has(file, "c")
	m.clear([]string{"p"}, []string{"c"})
}

func TestMovedRoot_underARunningHostLosesNothing(t *testing.T) {
	m := newMachine(t)
	m.start()
	file := m.used("c", "p")
	away := m.root + "-away"
	if err := os.Rename(m.root, away); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(strings.Replace(file, m.root, away, 1))
	if err != nil || string(data) != "of c" {
		t.Errorf("got %q, %v", data, err)
	}
	if err := os.Rename(away, m.root); err != nil {
		t.Fatal(err)
	}
	m.stop()
	m.start()
	m.has(file, "c")
	m.clear([]string{"p"}, []string{"c"})
}

func TestTerminated_inTheMiddleOfAMount(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.apply(firstClass)
	var pods, claims []string
	for i := range 8 {
		claim, pod := fmt.Sprintf("c%d", i), fmt.Sprintf("p%d", i)
		pods, claims = append(pods, pod), append(claims, claim)
		m.apply(claimText(claim, "first", 16, "") + "---" + heldPod(pod, claim))
		time.Sleep(time.Duration(i) * 7 * time.Millisecond)
		before := time.Now()
		m.stop()                                               // it fails the test unless the exit code is 0
		if took := time.Since(before); took > 90*time.Second { // systemd kills it then
			t.Errorf("it ends after %v", took)
		}
		m.start()
	}
	for i, pod := range pods {
		file := m.content(m.running(pod), claims[i])
		if err := writeSynced(file, "of "+claims[i]); err != nil {
			t.Error(err)
		}
	}
	m.clear(pods, claims)
	if left := m.mounts(); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

// writeDriver adds a driver in a separate process to the host.
func (m *machine) writeDriver(name string) {
	m.t.Helper()
	directory := filepath.Join(m.root, "drivers.d")
	if err := os.MkdirAll(directory, 0o700); err != nil {
		m.t.Fatal(err)
	}
	unit := fmt.Sprintf("name: %s\ncommand: [%s, driver, all, --backend=local, --driver-name=%s, --endpoint=$(CSI_ENDPOINT), --pool=%s, --kubelet-dir=%s]\nregister: true\n",
		name, binary, name, filepath.Join(m.root, "pool2"), m.root)
	if err := os.WriteFile(filepath.Join(directory, "second.yaml"), []byte(unit), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// endDriver takes it away again.
func (m *machine) endDriver() {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.root, "drivers.d", "second.yaml")); err != nil {
		m.t.Fatal(err)
	}
	m.until("the driver is gone", limitOfTest, func() bool { return len(m.processes()) == 0 })
}

// One driver stops answering; the volumes of the other are served as fast as before.
func TestHangingDriver_delaysNoOther(t *testing.T) {
	m := newMachine(t)
	m.writeDriver(secondDriver)
	m.start()
	m.apply(soakClasses)
	m.until("the second driver serves", 20*time.Second, func() bool {
		m.apply(claimText("before", "second", 16, ""))
		claim := m.claimOf("before")
		return claim != nil && claim.Status.Phase == corev1.ClaimBound
	})
	var hanging []int
	for _, pid := range m.processes() {
		if isSecondDriver(pid) {
			hanging = append(hanging, pid)
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(hanging) == 0 {
		t.Fatal("no process of the second driver")
	}
	for i := range 50 {
		m.apply(claimText(fmt.Sprintf("h%d", i), "second", 16, ""))
	}
	m.apply(heldPod("hangs", "before"))
	start := time.Now()
	m.apply(claimText("quick", "first", 16, "") + "---" + heldPod("quick", "quick"))
	m.running("quick")
	took := time.Since(start)
	t.Logf("next to a driver that hangs, a pod runs after %v", took)
	if took > client.DefaultTimeout/2 { // a call that hangs takes all of it
		t.Errorf("a pod of the other driver waits for %v", took)
	}
	before := time.Now()
	m.stop()
	t.Logf("and the host ends after %v", time.Since(before))
	for _, pid := range hanging {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
	}
	m.start()
	m.running("hangs")
	pods, claims := []string{"hangs", "quick"}, []string{"before", "quick"}
	for i := range 50 {
		claims = append(claims, fmt.Sprintf("h%d", i))
	}
	m.clear(pods, claims)
	m.endDriver()
}

func TestFewDescriptors_areEnough(t *testing.T) {
	m := newMachine(t)
	m.host = exec.Command("sh", "-c", `ulimit -n 64; exec "$0" host --root "$1" --log-format=json`, binary, m.root)
	m.host.Stdout, m.host.Stderr = m.log, m.log
	if err := m.host.Start(); err != nil {
		t.Fatal(err)
	}
	m.until("the host answers", 20*time.Second, func() bool {
		_, err := m.client.Version(t.Context())
		return err == nil
	})
	m.apply(firstClass)
	var pods, claims []string
	for i := range 40 {
		claim, pod := fmt.Sprintf("c%d", i), fmt.Sprintf("p%d", i)
		pods, claims = append(pods, pod), append(claims, claim)
		m.apply(claimText(claim, "first", 16, "") + "---" + heldPod(pod, claim))
	}
	for _, pod := range pods {
		m.until(pod+" runs", 2*time.Minute, func() bool {
			pod := get[*corev1.Pod](m, "pods", "default", pod)
			return pod != nil && pod.Status.Phase == corev1.PodRunning
		})
	}
	m.clear(pods, claims)
}

// A driver is removed permanently with a volume mounted: --abandon suffices to delete
// the objects, and only after the volume is unmounted.
func TestDriverGoneForEver_isAbandoned(t *testing.T) {
	m := newMachine(t)
	m.writeDriver(secondDriver)
	m.start()
	m.apply(soakClasses)
	m.apply(claimText("c", "second", 16, "") + "---" + heldPod("p", "c"))
	file := m.content(m.running("p"), "c")
	if err := writeSynced(file, "of c"); err != nil {
		t.Fatal(err)
	}
	volume := m.claimOf("c").Spec.VolumeName
	m.endDriver()
	says(t, m.succeeds("delete", "pod/p", "--abandon", "--wait=false"), "given up where nothing is mounted")
	m.until("the mounted volume is named", 20*time.Second, func() bool {
		return strings.Contains(m.events("pod", "p"), "still mounted")
	})
	m.has(file, "c")
	// The administrator unmounts the named paths, one after the other.
	for points := m.mounts(); len(points) > 0; points = points[:len(points)-1] {
		if err := syscall.Unmount(points[len(points)-1], 0); err != nil && !strings.Contains(points[len(points)-1], "/pool") {
			t.Logf("umount %s: %v", points[len(points)-1], err)
		}
	}
	m.until("the pod is gone", 150*time.Second, func() bool { return get[*corev1.Pod](m, "pods", "default", "p") == nil })
	says(t, m.events("pvc", "c"), "VolumeAbandoned")
	said := m.succeeds("delete", "pvc/c", "--abandon", "--timeout=20s")
	says(t, said, "stays, with its data", secondDriver)
	m.until("the volume's object is gone", 10*time.Second, func() bool {
		return get[*corev1.PersistentVolume](m, "persistentvolumes", "", volume) == nil
	})
	if m.claimOf("c") != nil {
		t.Error("the claim is still there")
	}
	if images, _ := filepath.Glob(filepath.Join(m.root, "pool2", "volumes", "*")); len(images) != 1 {
		t.Errorf("the storage has %v", images)
	}
	says(t, m.fails("delete", "sc/second", "--abandon"), "no volume that could be abandoned")
}
