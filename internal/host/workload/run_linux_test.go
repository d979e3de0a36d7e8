package workload

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain is the child's side when Run starts this test's own binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ChildCommand {
		os.Exit(Child())
	}
	os.Exit(m.Run())
}

// timeout is how long a test waits for a condition.
const timeout = time.Minute

// nap is a command that sleeps, distinct from those of other runs of these tests.
func nap(seconds int) string { return fmt.Sprintf("sleep %d.%07d", seconds, os.Getpid()) }

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("needs root: run make test")
	}
}

// shell is a container that runs a script.
func shell(t *testing.T, script string, mounts ...Mount) Container {
	t.Helper()
	return Container{
		Name: "main", Command: []string{"sh", "-c", script}, Directory: "/", Scratch: t.TempDir(),
		Env: []string{"PATH=" + defaultPath}, Mounts: mounts, GracePeriod: time.Second,
	}
}

func runIt(t *testing.T, container Container) (code int, stdout, stderr string) {
	t.Helper()
	needRoot(t)
	var out, err bytes.Buffer
	code, failure := Run(t.Context(), container, Streams{Stdout: &out, Stderr: &err}, nil)
	if failure != nil {
		t.Fatal(failure)
	}
	return code, out.String(), err.String()
}

func TestRun_passesOutputAndExitCodeThrough(t *testing.T) {
	code, stdout, stderr := runIt(t, shell(t, "echo out; echo err >&2; exit 7"))
	if code != 7 || stdout != "out\n" || stderr != "err\n" {
		t.Fatalf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestRun_reportsAKillingSignalLikeAShell(t *testing.T) {
	if code, _, _ := runIt(t, shell(t, "kill -TERM $$")); code != 128+int(syscall.SIGTERM) {
		t.Fatalf("code %d", code)
	}
}

func TestRun_saysThatACommandDoesNotExist(t *testing.T) {
	container := shell(t, "")
	container.Command = []string{"no-such-program"}
	code, _, stderr := runIt(t, container)
	if code != 127 || !strings.Contains(stderr, "no-such-program") {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
}

func TestRun_showsVolumesWithoutTouchingTheMachine(t *testing.T) {
	volume := t.TempDir()
	target := "/holdfast-test-volume/inner"
	code, stdout, stderr := runIt(t, shell(t, "echo hello > "+target+"/file && cat "+target+"/file && test -e /etc/passwd && touch /made-by-workload",
		Mount{Source: volume, Target: target}))
	if code != 0 || stdout != "hello\n" {
		t.Fatalf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if data, err := os.ReadFile(filepath.Join(volume, "file")); err != nil || string(data) != "hello\n" {
		t.Fatalf("the volume has %q, %v", data, err)
	}
	for _, path := range []string{"/holdfast-test-volume", "/made-by-workload"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s was made on the machine", path)
		}
	}
}

func TestRun_mirrorsOnlyWhereAnEntryIsMissing(t *testing.T) {
	deep := "/usr/share/holdfast-test/data"
	code, stdout, stderr := runIt(t, shell(t, "mountpoint -q "+deep+" && ls /usr/share/doc >/dev/null && ls -d /usr/bin && stat -f -c %T /usr/bin",
		Mount{Source: t.TempDir(), Target: deep}))
	if code != 0 || strings.Contains(stdout, "tmpfs") {
		t.Fatalf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if _, err := os.Lstat("/usr/share/holdfast-test"); err == nil {
		t.Error("an entry was made on the machine")
	}
}

func TestRun_doesNotKeepTheMachinesMountsBusy(t *testing.T) {
	root := t.TempDir()
	volume, other := filepath.Join(root, "volume"), filepath.Join(root, "other")
	for _, dir := range []string{volume, other} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		needRoot(t)
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err) // so the container took away its own copy only
			}
		})
	}
	container := shell(t, "grep -c "+root+"/ /proc/mounts; echo kept > /data/file", Mount{Source: volume, Target: "/data"})
	container.Hide = []string{root}
	code, stdout, stderr := runIt(t, container)
	if code != 0 || stdout != "0\n" {
		t.Fatalf("code %d, mounts below the hidden directory: %q, stderr %q", code, stdout, stderr)
	}
	if got, err := os.ReadFile(filepath.Join(volume, "file")); err != nil || string(got) != "kept\n" {
		t.Fatalf("the container's own volume: %q, %v", got, err)
	}
}

func TestRun_nestedMountPathsAndLinks(t *testing.T) {
	outer, inner, linked := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(inner, "inner"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// /var/run is a symbolic link to /run on this kind of machine.
	code, _, stderr := runIt(t, shell(t, "test -e /data/sub/inner && mountpoint -q /run/holdfast-test",
		Mount{Source: inner, Target: "/data/sub"}, Mount{Source: outer, Target: "/data"}, Mount{Source: linked, Target: "/var/run/holdfast-test"}))
	if code != 0 {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(outer, "sub")); err != nil {
		t.Errorf("the nested mount point was not made in the outer volume: %v", err)
	}
}

func TestRun_refusesAMountPathBehindALinkInAVolume(t *testing.T) {
	needRoot(t)
	outer := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(outer, "sub")); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), shell(t, "true", Mount{Source: outer, Target: "/data"}, Mount{Source: t.TempDir(), Target: "/data/sub"}), Streams{}, nil)
	if err == nil || !strings.Contains(err.Error(), "symbolic link in a volume") {
		t.Fatalf("got %v", err)
	}
}

// A link on the way leads out of the volume: its target must not change.
func TestRun_makesNothingBehindALinkInAVolume(t *testing.T) {
	volume, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(".."+outside, filepath.Join(volume, "a")); err != nil {
		t.Fatal(err)
	}
	for _, device := range []bool{false, true} {
		inner := Mount{Source: t.TempDir(), Target: "/data/a/b", Device: device}
		if device {
			inner.Source = os.DevNull
		}
		_, err := Run(t.Context(), shell(t, "true", Mount{Source: volume, Target: "/data"}, inner), Streams{}, nil)
		if err == nil || !strings.Contains(err.Error(), "symbolic link in a volume") {
			t.Errorf("got %v", err)
		}
		if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
			t.Errorf("made on the machine: %v, %v", entries, err)
		}
	}
}

// A user who may write above a mount path replaces it with a link, between any two
// steps: the link's target must not change.
func TestRun_makesNothingAtTheTargetOfAReplacedPath(t *testing.T) {
	needRoot(t)
	above, outside := t.TempDir(), t.TempDir()
	own, link := filepath.Join(above, "own"), filepath.Join(above, "link")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(own, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// In the container's root, too, it leads to the machine's directory.
	if err := os.Symlink("../../../../../../../../.."+outside, link); err != nil {
		t.Fatal(err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default: // own is now the directory and now the link
				_ = unix.Renameat2(unix.AT_FDCWD, own, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 40 { // each may be refused
		_, _ = Run(t.Context(), shell(t, "true", Mount{Source: t.TempDir(), Target: filepath.Join(own, "data")}), Streams{}, nil)
	}
	close(done)
	<-ended
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("made on the machine: %v, %v", entries, err)
	}
}

func TestRun_readOnlyMount(t *testing.T) {
	code, _, stderr := runIt(t, shell(t, "touch /data/x", Mount{Source: t.TempDir(), Target: "/data", ReadOnly: true}))
	if code == 0 || !strings.Contains(stderr, "Read-only file system") {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
}

func TestRun_subPathIsMadeAndStaysInside(t *testing.T) {
	volume := t.TempDir()
	if code, _, stderr := runIt(t, shell(t, "touch /data/x", Mount{Source: volume, SubPath: "a/b", Target: "/data"})); code != 0 {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(volume, "a", "b", "x")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(volume, "out")); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), shell(t, "true", Mount{Source: volume, SubPath: "out", Target: "/data"}), Streams{}, nil); err == nil {
		t.Fatal("a subPath that leads out of the volume was accepted")
	}
}

// Who may write to a volume may put a pipe there, which is not open before
// a process writes to it.
func TestRun_waitsForNothingInAVolume(t *testing.T) {
	needRoot(t)
	volume := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(volume, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var out bytes.Buffer
	_, err := Run(ctx, shell(t, "true", Mount{Source: volume, SubPath: "pipe", Target: "/mnt"}), Streams{Stdout: &out, Stderr: &out}, nil)
	if err == nil || !strings.Contains(err.Error(), "subPath pipe: ") || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("%v %s", err, &out)
	}
}

func TestRun_readOnlyRootLeavesVolumesWritable(t *testing.T) {
	container := shell(t, "touch /data/x && touch /dev/null && ! touch /x && ! touch "+t.TempDir()+"/x", Mount{Source: t.TempDir(), Target: "/data"})
	container.ReadOnlyRoot = true
	if code, _, stderr := runIt(t, container); code != 0 {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
}

func TestRun_userGroupsAndPrivileges(t *testing.T) {
	container := shell(t, "id -u; id -g; id -G; grep -E 'NoNewPrivs|CapBnd' /proc/self/status")
	container.UID, container.GID, container.Groups = 1234, 1235, []uint32{1236}
	container.NoNewPrivs, container.DropAll, container.KeepCaps = true, true, []string{"CHOWN"}
	code, stdout, stderr := runIt(t, container)
	want := "1234\n1235\n1235 1236\nCapBnd:\t0000000000000001\nNoNewPrivs:\t1\n"
	if code != 0 || stdout != want {
		t.Fatalf("code %d, stdout %q, want %q; stderr %q", code, stdout, want, stderr)
	}
}

func TestRun_processesSeeOnlyTheirOwn(t *testing.T) {
	_, stdout, _ := runIt(t, shell(t, "cat /proc/1/cmdline | tr '\\0' ' '; ls -d /proc/[0-9]* | wc -l"))
	if !strings.Contains(stdout, ChildCommand) {
		t.Fatalf("process 1 is %q", stdout)
	}
}

func TestRun_deviceAppearsInsideOnly(t *testing.T) {
	needRoot(t)
	node := filepath.Join(t.TempDir(), "device")
	if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))); err != nil { // zero(4)
		t.Fatal(err)
	}
	code, stdout, stderr := runIt(t, shell(t, "test -c /dev/holdfast-test && head -c 3 /dev/holdfast-test | od -An -tx1 && echo x > /dev/null",
		Mount{Source: node, Target: "/dev/holdfast-test", Device: true}))
	if code != 0 || strings.TrimSpace(stdout) != "00 00 00" {
		t.Fatalf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if _, err := os.Lstat("/dev/holdfast-test"); err == nil {
		t.Error("the device was made on the machine")
	}
}

func TestRun_signalIsPassedOn(t *testing.T) {
	needRoot(t)
	var out bytes.Buffer
	signals := make(chan os.Signal, 1)
	ready := &notifying{buffer: &out, first: make(chan struct{})}
	go func() {
		<-ready.first
		signals <- syscall.SIGINT
	}()
	code, err := Run(t.Context(), shell(t, "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.01; done"), Streams{Stdout: ready}, signals)
	if err != nil || code != 3 || out.String() != "ready\ncaught\n" {
		t.Fatalf("code %d, output %q, %v", code, out.String(), err)
	}
}

func TestRun_killsAfterTheGracePeriod(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	ready := &notifying{buffer: &bytes.Buffer{}, first: make(chan struct{})}
	go func() {
		<-ready.first
		cancel()
	}()
	container := shell(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	container.GracePeriod = 50 * time.Millisecond
	code, err := Run(ctx, container, Streams{Stdout: ready}, nil)
	if err != nil || code != 128+int(syscall.SIGKILL) {
		t.Fatalf("code %d, %v", code, err)
	}
}

// notifying closes a channel at the first output.
type notifying struct {
	buffer *bytes.Buffer
	first  chan struct{}
}

func (n *notifying) Write(data []byte) (int, error) {
	if n.buffer.Len() == 0 {
		close(n.first)
	}
	return n.buffer.Write(data)
}

// TestRun_nothingOutlivesTheParent kills a process in the middle of Run, and searches
// for background processes of the workload.
func TestRun_nothingOutlivesTheParent(t *testing.T) {
	needRoot(t)
	if nap := os.Getenv("WORKLOAD_PARENT"); nap != "" {
		_, err := Run(t.Context(), shell(t, "setsid "+nap+" & echo ready; wait"), Streams{Stdout: os.Stdout}, nil)
		t.Fatal("the workload ended", err)
	}
	parent := exec.Command("/proc/self/exe", "-test.run", t.Name())
	// It cannot clean up after itself.
	parent.Env = append(os.Environ(), "WORKLOAD_PARENT="+nap(4242), "TMPDIR="+t.TempDir())
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for deadline := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		if exec.Command("pgrep", "-xf", nap(4242)).Run() != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a process of the workload is still there")
		}
	}
}

func TestRun_commandInheritsNothingButItsStreams(t *testing.T) {
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY, 0) // without O_CLOEXEC, as inherited from a shell
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if _, stdout, _ := runIt(t, shell(t, "ls /proc/self/fd | tr '\\n' ' '")); stdout != "0 1 2 3 " { // 3 is that of ls
		t.Errorf("the command has the descriptors %s", stdout)
	}
}

// A mount in memory is the container's alone: its files are on no filesystem of the
// machine.
func TestRun_showsFilesInMemory(t *testing.T) {
	target := filepath.Join(t.TempDir(), "secret")
	files := []File{{Path: "a/b", Data: []byte("hunter2"), Mode: 0o440, GID: 7}, {Path: "c", Mode: 0o644}}
	code, stdout, stderr := runIt(t, shell(t, "cd "+target+" && cat a/b && stat -c ' %a %g %s' a/b c && findmnt -no FSTYPE . && ! touch new",
		Mount{Target: target, Memory: true, ReadOnly: true, Files: files}))
	if code != 0 || stdout != "hunter2 440 7 7\n 644 0 0\ntmpfs\n" {
		t.Errorf("code %d, %q, %s", code, stdout, stderr)
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("the mount path is there outside of the container, too")
	}
	var out bytes.Buffer
	escape := shell(t, "true", Mount{Target: target, Memory: true, Files: []File{{Path: "../x", Mode: 0o600}}})
	if _, err := Run(t.Context(), escape, Streams{Stdout: &out, Stderr: &out}, nil); err == nil || !strings.Contains(err.Error(), "leads out of the volume") {
		t.Errorf("a path that leads out: %v", err)
	}
}

// A part of a mount in memory appears at a path: a file as a file, also over one that
// exists, and a directory as a directory.
func TestRun_showsAPartOfWhatIsInMemory(t *testing.T) {
	directory := t.TempDir()
	existing := filepath.Join(directory, "existing.conf")
	if err := os.WriteFile(existing, []byte("the machine's"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []File{{Path: "a/b", Data: []byte("in memory"), Mode: 0o444}}
	part := func(target, sub string, file bool) Mount {
		return Mount{Target: target, Memory: true, ReadOnly: true, Files: files, SubPath: sub, File: file}
	}
	made, below := filepath.Join(directory, "new", "made.conf"), filepath.Join(directory, "below")
	code, stdout, stderr := runIt(t, shell(t, fmt.Sprintf("cat %s %s %s/b; echo x > %s", existing, made, below, existing),
		part(existing, "a/b", true), part(made, "a/b", true), part(below, "a", false)))
	if want := "in memoryin memoryin memory"; code == 0 || stdout != want || !strings.Contains(stderr, "Read-only file system") {
		t.Errorf("code %d, output %q, want %q; errors %q", code, stdout, want, stderr)
	}
	if now, err := os.ReadFile(existing); err != nil || string(now) != "the machine's" {
		t.Errorf("the machine's file is %q, %v", now, err)
	}
}
