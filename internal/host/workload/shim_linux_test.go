package workload

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/host/workload/inside"
)

const testBoot = "boot-1"

func testShim(t *testing.T) Shim {
	t.Helper()
	needRoot(t)
	root := t.TempDir()
	shim := Shim{State: filepath.Join(root, "state"), Logs: filepath.Join(root, "logs"), BootID: testBoot}
	t.Cleanup(func() {
		if _, process, err := shim.Inspect(ReasonError); err == nil && process != nil {
			_ = process.Signal(unix.SIGKILL)
			process.Wait()
			_ = process.Close()
		}
	})
	return shim
}

func start(t *testing.T, shim Shim, container Container) (State, *Process) {
	t.Helper()
	state, process, err := shim.Start(container, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Close() })
	return state, process
}

// ended waits for the end of a shim and returns its last state.
func ended(t *testing.T, shim Shim, process *Process, reason string) State {
	t.Helper()
	late := time.AfterFunc(timeout, func() { _ = process.Signal(unix.SIGKILL) })
	defer late.Stop()
	if !process.Wait() {
		t.Fatal("closed")
	}
	state, running, err := shim.Inspect(reason)
	if err != nil || running != nil || state.Phase != Exited || state.Ended == nil {
		t.Fatalf("got %+v, running %v, %v", state, running, err)
	}
	return state
}

// logOf returns the log's lines without their times.
func logOf(t *testing.T, shim Shim, attempt int) string {
	t.Helper()
	name, _ := shim.LogFile(attempt)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(data)) {
		stamp, rest, _ := strings.Cut(line, " ")
		if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		text.WriteString(rest)
	}
	return text.String()
}

func TestShim_leavesItsEndAndItsOutput(t *testing.T) {
	shim := testShim(t)
	state, process := start(t, shim, shell(t, "echo out; echo err >&2; printf rest; exit 7"))
	if state.PID != process.PID() || state.Attempt != 0 || state.BootID != testBoot {
		t.Fatalf("started as %+v, process %d", state, process.PID())
	}
	state = ended(t, shim, process, ReasonUnknown)
	if e := *state.Ended; e.ExitCode != 7 || e.Reason != ReasonError || e.Finished.Before(e.Started) {
		t.Fatalf("ended as %+v", e)
	}
	text := logOf(t, shim, 0)
	for _, want := range []string{"stdout F out\n", "stderr F err\n", "stdout F rest\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log has no %q: %q", want, text)
		}
	}
}

func TestShim_isFoundAgainByAnotherHost(t *testing.T) {
	shim := testShim(t)
	first, process := start(t, shim, shell(t, "sleep 300"))
	if err := process.Close(); err != nil { // the host goes
		t.Fatal(err)
	}
	state, found, err := shim.Inspect(ReasonUnknown)
	if err != nil || found == nil || state.PID != first.PID || state.Phase != Running {
		t.Fatalf("found %+v, %v, %v", state, found, err)
	}
	if _, _, err := shim.Start(shell(t, "true"), 0); !errors.Is(err, ErrBusy) {
		t.Fatalf("a second one was started: %v", err)
	}
	if err := found.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	state = ended(t, shim, found, ReasonUnknown)
	if e := *state.Ended; e.ExitCode != 128+15 || e.Signal != 15 {
		t.Fatalf("ended as %+v", e)
	}
	_ = found.Close()
}

func TestShim_killedTakesEverythingWithIt(t *testing.T) {
	shim := testShim(t)
	_, process := start(t, shim, shell(t, "setsid "+nap(4711)+" & (setsid "+nap(4711)+" &) ; "+nap(4711)))
	eventually(t, func() bool { return countProcesses(t, nap(4711)) == 3 })
	if err := unix.Kill(process.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	state := ended(t, shim, process, ReasonUnknown)
	if e := *state.Ended; e.ExitCode != 137 || e.Reason != ReasonUnknown {
		t.Fatalf("ended as %+v", e)
	}
	if n := countProcesses(t, nap(4711)); n != 0 {
		t.Fatalf("%d processes are left", n)
	}
}

func TestShim_endsTheCommandsBackgroundProcesses(t *testing.T) {
	shim := testShim(t)
	_, process := start(t, shim, shell(t, "setsid "+nap(4712)+" & exit 0"))
	if e := *ended(t, shim, process, ReasonUnknown).Ended; e.ExitCode != 0 || e.Reason != ReasonCompleted {
		t.Fatalf("ended as %+v", e)
	}
	if n := countProcesses(t, nap(4712)); n != 0 {
		t.Fatalf("%d processes are left", n)
	}
}

func TestShim_commandThatCannotStart(t *testing.T) {
	shim := testShim(t)
	container := shell(t, "")
	container.Command = []string{"no-such-program"}
	_, process := start(t, shim, container)
	if e := *ended(t, shim, process, ReasonUnknown).Ended; e.ExitCode != 127 {
		t.Fatalf("ended as %+v", e)
	}
	container = shell(t, "true", Mount{Source: "/no/such/volume", Target: "/data"})
	_, process = start(t, shim, container)
	state := ended(t, shim, process, ReasonUnknown)
	if e := *state.Ended; state.Attempt != 1 || e.Reason != ReasonStartError || e.ExitCode != 128 || !strings.Contains(e.Message, "/no/such/volume") {
		t.Fatalf("ended as %+v", e)
	}
	if state.Previous == nil || state.Previous.ExitCode != 127 {
		t.Fatalf("the attempt before is forgotten: %+v", state.Previous)
	}
}

func TestShim_ofAnotherBootIsGone(t *testing.T) {
	shim := testShim(t)
	_, process := start(t, shim, shell(t, "sleep 300"))
	_ = process.Signal(unix.SIGKILL)
	process.Wait()
	shim.BootID = "boot-2"
	state, found, err := shim.Inspect(ReasonError)
	if err != nil || found != nil || state.Ended == nil || state.Ended.Reason != ReasonUnknown || state.Ended.Signal != 0 {
		t.Fatalf("got %+v, %v, %v", state, found, err)
	}
}

// The process ID of a shim that has ended may belong to another process by now.
func TestShim_numberIsNotEnough(t *testing.T) {
	shim := testShim(t)
	state, process := start(t, shim, shell(t, "sleep 300"))
	state.Birth--
	root, err := os.OpenRoot(shim.State)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	if err := inside.WriteState(root, state); err != nil {
		t.Fatal(err)
	}
	if _, found, err := shim.Inspect(ReasonUnknown); !errors.Is(err, ErrBusy) || found != nil {
		t.Fatalf("a process was taken for the shim by its number alone: %v, %v", found, err)
	}
	_ = process.Signal(unix.SIGKILL)
	process.Wait()
}

func TestShim_intentWithoutCommandIsStartedAgain(t *testing.T) {
	shim := testShim(t)
	if err := shim.makeDirectories(); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(shim.State)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	if err := inside.WriteState(root, State{}.Next(testBoot)); err != nil {
		t.Fatal(err)
	}
	state, process, err := shim.Inspect(ReasonUnknown)
	if err != nil || process != nil || state.Phase != Starting {
		t.Fatalf("got %+v, %v, %v", state, process, err)
	}
	state, process = start(t, shim, shell(t, "exit 0"))
	if state.Attempt != 0 {
		t.Fatalf("attempt %d; want the first", state.Attempt)
	}
	ended(t, shim, process, ReasonUnknown)
}

// A filesystem of the machine hangs, and the shim waits for it.
func TestShim_thatDoesNotGetToItsCommandIsEnded(t *testing.T) {
	container := shell(t, "true")
	container.Env = append(container.Env, "LONG="+strings.Repeat("x", 32<<20)) // large, so that handing it done is slow
	var shim Shim
	var err error
	for tries := 0; err == nil; tries++ { // again if the shim was quicker than the loop that must catch it
		if tries == 50 {
			t.Fatal("the shim was not caught")
		}
		shim = testShim(t)
		shim.StartLimit = 5 * time.Second
		done, stopped := make(chan struct{}), make(chan struct{})
		go func() { defer close(stopped); stopChild(done) }()
		var process *Process
		_, process, err = shim.Start(container, 0)
		close(done)
		<-stopped
		if err == nil {
			_ = process.Signal(unix.SIGKILL)
			process.Wait()
			_ = process.Close()
		}
	}
	if !strings.Contains(err.Error(), "its shim did not start it within 5s") {
		t.Fatal(err)
	}
	state, process, err := shim.Inspect(ReasonError)
	if state.Phase != Starting || process != nil || err != nil {
		t.Errorf("%+v, %v, %v", state, process, err)
	}
	shim.StartLimit = 0
	shim.StartLimit = 0
	_, process = start(t, shim, shell(t, "true"))
	ended(t, shim, process, ReasonError)
}

// stopChild stops the next process that this one starts, unless done is closed before.
func stopChild(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
		}
		lists, _ := filepath.Glob("/proc/self/task/*/children")
		for _, list := range lists {
			data, _ := os.ReadFile(list) // the thread may have ended
			for word := range strings.FieldsSeq(string(data)) {
				// Before its execve the child still is this program, which waits for it.
				line, _ := os.ReadFile(filepath.Join("/proc", word, "cmdline"))
				if pid, err := strconv.Atoi(word); err == nil && strings.HasSuffix(string(line), "\x00"+ChildCommand+"\x00") && unix.Kill(pid, unix.SIGSTOP) == nil {
					return
				}
			}
		}
	}
}

func TestShim_logIsRotated(t *testing.T) {
	shim := testShim(t)
	shim.LogLimit = 4 << 10
	_, process := start(t, shim, shell(t, "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done"))
	ended(t, shim, process, ReasonUnknown)
	current, aside := shim.LogFile(0)
	for _, name := range []string{current, aside} {
		info, err := os.Stat(name)
		if err != nil || info.Size() > shim.LogLimit || info.Size() == 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if text := logOf(t, shim, 0); !strings.HasSuffix(text, "stdout F line 499\n") {
		t.Errorf("the log ends with %q", text[max(0, len(text)-80):])
	}
}

func TestShim_longLinesAreCut(t *testing.T) {
	shim := testShim(t)
	_, process := start(t, shim, shell(t, "head -c 40000 /dev/zero | tr '\\0' x; echo; echo end"))
	ended(t, shim, process, ReasonUnknown)
	var marks []string
	for line := range strings.Lines(logOf(t, shim, 0)) {
		marks = append(marks, strings.Fields(line)[1]+strconv.Itoa(len(strings.Fields(line)[2])))
	}
	if got := strings.Join(marks, " "); got != "P16384 P16384 F7232 F3" {
		t.Fatalf("lines %s", got)
	}
}

func TestShim_oldLogsAreRemoved(t *testing.T) {
	shim := testShim(t)
	for i := range 4 {
		_, process := start(t, shim, shell(t, "echo "+strconv.Itoa(i)))
		ended(t, shim, process, ReasonUnknown)
	}
	entries, err := os.ReadDir(shim.Logs)
	if err != nil || len(entries) != 2 || entries[0].Name() != "2.log" || entries[1].Name() != "3.log" {
		t.Fatalf("%v, %v", entries, err)
	}
}

func TestShim_damagedStateStartsNothing(t *testing.T) {
	shim := testShim(t)
	if err := shim.makeDirectories(); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", `{"Version": 99}`} {
		if err := os.WriteFile(filepath.Join(shim.State, inside.StateFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := shim.Inspect(ReasonUnknown); err == nil {
			t.Errorf("%q was read", text)
		}
		if _, _, err := shim.Start(shell(t, "true"), 0); err == nil {
			t.Errorf("%q: something was started", text)
		}
	}
}

func eventually(t *testing.T, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}

// countProcesses counts those with a command line.
func countProcesses(t *testing.T, commandLine string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, entry := range entries {
		if data, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline")); err == nil && strings.TrimSuffix(strings.ReplaceAll(string(data), "\x00", " "), " ") == commandLine {
			count++
		}
	}
	return count
}

// A full disk costs output, but neither the container nor its exit code.
func TestShim_onAFullDisk(t *testing.T) {
	shim := testShim(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=128k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	shim.State, shim.Logs = filepath.Join(disk, "state"), filepath.Join(disk, "logs")
	volume := t.TempDir()
	_, process := start(t, shim, shell(t, "head -c 1000000 /dev/zero | tr '\\0' 'x' | fold; touch /data/done; exit 5", Mount{Source: volume, Target: "/data"}))
	eventually(t, func() bool { _, err := os.Stat(filepath.Join(volume, "done")); return err == nil })
	if state, err := shim.Last(); err != nil || state.Phase != Running {
		t.Fatalf("with a full disk the state is %+v, %v", state, err)
	}
	log, _ := shim.LogFile(0)
	if err := os.Truncate(log, 0); err != nil {
		t.Fatal(err)
	}
	if e := *ended(t, shim, process, ReasonUnknown).Ended; e.ExitCode != 5 {
		t.Fatalf("ended as %+v", e)
	}
}

func TestShim_inheritsOnlyItsFiles(t *testing.T) {
	shim := testShim(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(read.Close(), write.Close()) }()
	if _, err := unix.FcntlInt(write.Fd(), unix.F_SETFD, 0); err != nil { // as if inherited from the program that started the host
		t.Fatal(err)
	}
	_, process := start(t, shim, shell(t, "ls /proc/self/fd | tr '\\n' ' '"))
	ended(t, shim, process, ReasonUnknown)
	if text := logOf(t, shim, 0); text != "stdout F 0 1 2 3 \n" { // 3 is the directory that ls reads
		t.Errorf("the command has descriptors %q", text)
	}
}
