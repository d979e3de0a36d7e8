package host_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
)

const holdClaim = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: local.holdfast.dev
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 32Mi}}}
`

// holding is a machine with a host and a claim.
func holding(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t)
	m.start()
	m.apply(holdClaim)
	return m
}

// holdfast runs a command of the machine's host to its end.
func (m *machine) holdfast(command string, arguments ...string) (code int, stdout, stderr string) {
	m.t.Helper()
	cmd := exec.Command(binary, append([]string{command, "--root", m.root}, arguments...)...)
	var out, failed bytes.Buffer
	cmd.Stdin = strings.NewReader("from stdin\n")
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		m.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), failed.String()
}

// mustRun runs holdfast, which must succeed.
func (m *machine) mustRun(command string, arguments ...string) string {
	m.t.Helper()
	code, stdout, stderr := m.holdfast(command, arguments...)
	if code != 0 {
		m.t.Fatalf("holdfast %s %v ends with %d: %s\n%s", command, arguments, code, stderr, m.tail())
	}
	return stdout
}

// background runs exec until the test ends or kills it.
func (m *machine) background(name, script string) *exec.Cmd {
	m.t.Helper()
	begun := filepath.Join(filepath.Dir(m.root), name+"-begun")
	cmd := exec.Command(binary, "exec", "--root", m.root, "--name", name, "--volume", "data:/srv/holdfast-test", "--", "sh", "-c", ": > "+begun+"; "+script)
	cmd.Stdout, cmd.Stderr = m.log, m.log
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = cmd.Process.Kill() })
	m.until(name+" has its volume and runs", 20*time.Second, func() bool {
		_, err := os.Stat(begun)
		pod := get[*corev1.Pod](m, "pods", "default", name)
		return err == nil && pod != nil && pod.Status.Phase == corev1.PodRunning
	})
	return cmd
}

func (m *machine) isReleased(name string) {
	m.t.Helper()
	m.until("the hold "+name+" is gone", 20*time.Second, func() bool { return get[*corev1.Pod](m, "pods", "default", name) == nil })
	if left := m.mounts(); len(left) > 0 {
		m.t.Errorf("still mounted: %v", left)
	}
}

func TestExec_runsACommandWithItsVolumes(t *testing.T) {
	m := holding(t)
	t.Setenv("HOLDFAST_TEST_GREETING", "hello")
	code, stdout, stderr := m.holdfast("exec", "--volume", "data:/srv/holdfast-test", "--", "sh", "-c",
		`cat; echo $HOLDFAST_TEST_GREETING | tee /srv/holdfast-test/file; pwd; exit 7`)
	here, _ := os.Getwd()
	if want := "from stdin\nhello\n" + here + "\n"; code != 7 || stdout != want {
		t.Errorf("exec ends with %d, says %q and %s; want 7 and %q", code, stdout, stderr, want)
	}
	if _, err := os.Stat("/srv/holdfast-test"); err == nil {
		t.Error("the path is there outside of the command, too")
	}
	if left := m.mounts(); len(left) > 0 {
		t.Errorf("still mounted when exec has ended: %v", left)
	}
	code, stdout, _ = m.holdfast("exec", "--volume", "data:/srv/holdfast-test:ro", "--", "sh", "-c", "cat /srv/holdfast-test/file; touch /srv/holdfast-test/new")
	if code == 0 || stdout != "hello\n" {
		t.Errorf("read-only, exec ends with %d and says %q", code, stdout)
	}
	if out := m.mustRun("exec", "--inline", "local.holdfast.dev:/srv/holdfast-test:size=8Mi", "--", "findmnt", "-no", "FSTYPE", "/srv/holdfast-test"); out != "ext4\n" {
		t.Errorf("the inline volume is %q", out)
	}
}

func TestExec_namesTheRemedy(t *testing.T) {
	m := newMachine(t)
	code, _, stderr := m.holdfast("exec", "--volume", "data:/srv/x", "--", "true")
	if want := "no host is running with --root " + m.root + ": start one with 'holdfast host --root " + m.root + "'"; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("without a host: %d, %q", code, stderr)
	}
	m.start()
	code, _, stderr = m.holdfast("exec", "--volume", "data:/srv/x", "--", "true")
	if want := "claim default/data does not exist: make it with 'holdfast apply'"; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("without a claim: %d, %q", code, stderr)
	}
	m.apply(strings.Replace(holdClaim, "provisioner: local.holdfast.dev", "provisioner: absent.example", 1))
	code, _, stderr = m.holdfast("exec", "--timeout", "3s", "--name", "late", "--volume", "data:/srv/x", "--", "true")
	if code != 1 || !strings.Contains(stderr, "its volumes are not in place") {
		t.Errorf("without a driver: %d, %q", code, stderr)
	}
	m.isReleased("late")
}

func TestExec_givesItsVolumesBackWhenItIsKilled(t *testing.T) {
	m := holding(t)
	exec := m.background("killed", "sleep 1000")
	if err := exec.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = exec.Wait() // its error reports the signal
	m.isReleased("killed")
}

func TestExec_continuesWhileTheHostRestarts(t *testing.T) {
	m := holding(t)
	restarted := filepath.Join(filepath.Dir(m.root), "restarted")
	exec := m.background("long", "until [ -e "+restarted+" ]; do sleep 0.05; done; echo late > /srv/holdfast-test/late; exit 3")
	m.kill()
	m.start()
	if err := os.WriteFile(restarted, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = exec.Wait()
	if code := exec.ProcessState.ExitCode(); code != 3 {
		t.Errorf("exec ends with %d; want 3\n%s", code, m.tail())
	}
	m.isReleased("long")
	if out := m.mustRun("exec", "--volume", "data:/srv/holdfast-test", "--", "cat", "/srv/holdfast-test/late"); out != "late\n" {
		t.Errorf("its output is %q", out)
	}
}

// The connection is gone with the first host: the second one has the process.
func TestLease_endsWithItsProcessAfterARestart(t *testing.T) {
	for _, first := range []string{"host", "process"} {
		t.Run("the "+first+" ends first", func(t *testing.T) {
			m := holding(t)
			exec := m.background("lost", "sleep 1000")
			m.kill()
			if first == "host" {
				m.start()
				if get[*corev1.Pod](m, "pods", "default", "lost") == nil {
					t.Fatal("the hold is gone while its process lives")
				}
			}
			_ = exec.Process.Kill()
			_ = exec.Wait()
			if first == "process" {
				m.start()
			}
			m.isReleased("lost")
		})
	}
}

func (m *machine) directory(name string) string {
	m.t.Helper()
	path := filepath.Join(filepath.Dir(m.root), name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = syscall.Unmount(path, syscall.MNT_DETACH) }) // of a test that failed
	return path
}

func isMounted(t *testing.T, path string) bool {
	t.Helper()
	ok, err := mountinfo.Mounted(path)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func TestHold_keepsAVolumeAtADirectory(t *testing.T) {
	m := holding(t)
	at := m.directory("data")
	m.mustRun("hold", "database", "--volume", "data:"+at)
	if err := os.WriteFile(filepath.Join(at, "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.mustRun("hold", "database", "--volume", "data:"+at) // the same again
	m.kill()
	m.start()
	m.mustRun("hold", "database", "--volume", "data:"+at)
	if data, err := os.ReadFile(filepath.Join(at, "file")); err != nil || string(data) != "kept" {
		t.Errorf("after a restart of the host: %q, %v", data, err)
	}
	code, _, stderr := m.holdfast("hold", "database", "--volume", "data:"+at+":ro")
	if code == 0 || !strings.Contains(stderr, "and is another one: it has the volume") {
		t.Errorf("another hold of that name: %d, %q", code, stderr)
	}
	m.mustRun("release", "database")
	if isMounted(t, at) {
		t.Error("it is still bound when it is released")
	}
	m.isReleased("database")
	if code, _, _ := m.holdfast("release", "database"); code == 0 {
		t.Error("a hold that is not there is released")
	}
	m.mustRun("release", "database", "--ignore-not-found")
}

func TestHold_refusesDirectoriesThatAreInUse(t *testing.T) {
	m := holding(t)
	at := m.directory("full")
	if err := os.WriteFile(filepath.Join(at, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(filepath.Dir(m.root), "link")
	if err := os.Symlink(m.directory("other"), link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		at: `the volume would hide "precious"`, "/proc": "something is mounted there already", link: "symbolic link",
		at + "/none": "make it first", m.root + "/pods": "the host's own directory",
	} {
		code, _, stderr := m.holdfast("hold", "database", "--volume", "data:"+path)
		if code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("at %s: %d, %q; want %q", path, code, stderr, want)
		}
	}
	if pod := get[*corev1.Pod](m, "pods", "default", "database"); pod != nil {
		t.Errorf("something is left: %v", pod)
	}
}

func TestRelease_saysThatAProcessUsesTheVolume(t *testing.T) {
	m := holding(t)
	at := m.directory("data")
	m.mustRun("hold", "database", "--volume", "data:"+at)
	file, err := os.Create(filepath.Join(at, "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	code, _, stderr := m.holdfast("release", "database", "--timeout", "6s")
	if code == 0 || !strings.Contains(stderr, "unmount "+at+": device or resource busy") {
		t.Errorf("release ends with %d and %q", code, stderr)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	m.isReleased("database") // it continues by itself
}

func TestRun_worksNextToAHost(t *testing.T) {
	m := holding(t)
	manifest := filepath.Join(filepath.Dir(m.root), "run.yaml")
	text := holdClaim + `
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  containers:
  - {name: w, image: none, command: [sh, -c, "echo x >> /data/f; wc -l < /data/f; exit 4"], volumeMounts: [{name: d, mountPath: /data}, {name: e, mountPath: /tmp/empty}]}
  volumes: [{name: d, persistentVolumeClaim: {claimName: data}}, {name: e, emptyDir: {}}]
`
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1\n", "2\n"} {
		if code, stdout, stderr := m.holdfast("run", "-f", manifest); code != 4 || stdout != want {
			t.Errorf("run ends with %d, %q and %s; want 4 and %q", code, stdout, stderr, want)
		}
		m.isReleased("writer")
	}
	m.mustRun("run", "--delete", "-f", manifest)
	if pvc := get[*corev1.PersistentVolumeClaim](m, "persistentvolumeclaims", "default", "data"); pvc != nil {
		t.Errorf("the claim is still there: %v", pvc.Status)
	}
	if left := m.loops(); len(left) > 0 {
		t.Errorf("still attached: %v", left)
	}
}

// `holdfast hold` prints the policy's warnings, and the reason of a denial.
func TestHold_hearsOfThePolicy(t *testing.T) {
	m := holding(t)
	const rule = "driver local.holdfast.dev is not allowed in namespace default (rule allowed-drivers, "
	scratch := "local.holdfast.dev:/srv/holdfast-test:size=8Mi"
	manifest := filepath.Join(filepath.Dir(m.root), "run.yaml")
	text := `
apiVersion: v1
kind: Pod
metadata: {name: app}
spec:
  containers:
  - {name: c, command: ["true"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, csi: {driver: local.holdfast.dev, volumeAttributes: {size: 8Mi}}}]
`
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	commands := [][]string{
		{"exec", "--inline", scratch, "--", "true"},
		{"hold", "scratch", "--inline", "local.holdfast.dev:" + t.TempDir() + ":size=8Mi"},
		{"run", "-f", manifest},
	}
	for mode, wanted := range map[string]struct {
		code int
		text string
	}{"warn": {0, "Warning: Pod default/"}, "enforce": {1, "holdfast: hold default/"}} {
		m.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: default, annotations: {inline.policy.holdfast.dev/" + mode + ": other.csi.example}}\n")
		for _, command := range commands {
			code, _, stderr := m.holdfast(command[0], command[1:]...)
			text := wanted.text
			if command[0] == "run" && code != 0 { // it names the document, as apply does
				text = "holdfast: " + manifest + ": document 1: Pod default/app: "
			}
			if code != wanted.code || !strings.Contains(stderr, text) || !strings.Contains(stderr, rule+mode+")") {
				t.Errorf("mode %s: holdfast %v ends with %d: %s", mode, command, code, stderr)
			}
		}
		m.mustRun("release", "scratch", "--ignore-not-found")
	}
}

// A volume that cannot be made is the reason why a hold is not ready: the
// caller gets the driver's answer, not only that the claim is not bound.
func TestExec_givesTheClaimsOwnError(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.apply(strings.Replace(holdClaim, "32Mi", "900Ti", 1))
	code, _, stderr := m.holdfast("exec", "--timeout", "3s", "--name", "late", "--volume", "data:/srv/x", "--", "true")
	if code != 1 || !strings.Contains(stderr, "claim default/data: ") || !strings.Contains(stderr, "CreateVolume") {
		t.Errorf("of a volume that is too large: %d, %q", code, stderr)
	}
	m.isReleased("late")
	m.apply(strings.Replace(strings.Replace(holdClaim, "name: data", "name: other", 1), "storageClassName: fast", "storageClassName: none", 1))
	code, _, stderr = m.holdfast("exec", "--timeout", "3s", "--name", "late", "--volume", "other:/srv/x", "--", "true")
	if code != 1 || !strings.Contains(stderr, "claim default/other: ") || !strings.Contains(stderr, `"none" not found`) {
		t.Errorf("of a class that is not there: %d, %q", code, stderr)
	}
	m.isReleased("late")
}
