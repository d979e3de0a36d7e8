//go:build wine && windows

package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	disk "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/disk/v1"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
)

// installed is a service of this test's own name.
type installed struct {
	*process // for its page and its control; it has no command
	name     string
	log      string
}

// verb runs a verb of the executable and gives its output and exit code.
func verb(t *testing.T, arguments ...string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*readyTime) // also for clean-up
	defer cancel()
	text, err := exec.CommandContext(ctx, executable(t, simulatedHost), arguments...).CombinedOutput()
	exit := &exec.ExitError{}
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err != nil {
		code = exit.ExitCode()
	}
	return string(text), code
}

// must runs a verb that succeeds.
func (s *installed) must(t *testing.T, arguments ...string) string {
	t.Helper()
	output, code := verb(t, append(arguments, "--service-name="+s.name)...)
	if code != 0 {
		t.Fatalf("csi-proxy %s ends with %d: %s", arguments[0], code, output)
	}
	return output
}

// install makes a service with a simulated machine, which goes at the test's end.
func install(t *testing.T) *installed {
	t.Helper()
	s := &installed{
		process: &process{page: freeAddress(t), control: freeAddress(t), output: &record{}, ended: make(chan struct{})},
		name:    "test-" + strconv.Itoa(os.Getpid()), log: filepath.Join(winetest.Dir(t), "proxy.log"),
	}
	s.must(t, s.install()...)
	t.Cleanup(func() {
		if output, code := verb(t, "remove", "--service-name="+s.name); code != 0 {
			t.Errorf("csi-proxy remove ends with %d: %s", code, output)
		}
		if text, err := os.ReadFile(s.log); err == nil && t.Failed() {
			t.Logf("the service's log:\n%s", text)
		}
	})
	return s
}

func (s *installed) install(more ...string) []string {
	return append([]string{"install", "--simulated-control=" + s.control, "-metrics-bind-address=" + s.page,
		"--log-level=debug", "-log_file=" + s.log}, more...)
}

// processID is the number that status reports.
func (s *installed) processID(t *testing.T) uint32 {
	t.Helper()
	for line := range strings.Lines(s.must(t, "status")) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "process: "); ok {
			number, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			return uint32(number)
		}
	}
	t.Fatal("status reports no process")
	return 0
}

// Installed, started, stopped and removed by its own verbs, each of which may
// be repeated.
func TestService_life(t *testing.T) {
	s := install(t)
	s.must(t, s.install("--working-dir=C:\\a b\\c", "--working-dir=D:\\d")...)
	output, code := verb(t, "status", "--service-name="+s.name)
	if code != 1 || !strings.Contains(output, "state: stopped") || !strings.Contains(output, "start: automatic") ||
		!strings.Contains(output, `"--working-dir=C:\a b\c" --working-dir=D:\d`) {
		t.Errorf("installed twice, its status is %d: %s", code, output)
	}
	for range 2 { // the second start finds it running
		s.must(t, "start")
		s.ready(t)
	}
	if output := s.must(t, "status"); !strings.Contains(output, "state: running") {
		t.Errorf("started, its status is %s", output)
	}
	for range 2 {
		s.must(t, "stop")
		for _, definition := range versions() {
			if !gone(definition.Pipe()) {
				t.Errorf("stopped, there is %s", definition.Pipe())
			}
		}
	}
	s.must(t, "start")
	s.ready(t)
	for range 2 { // remove stops it first
		s.must(t, "remove")
		if output, code := verb(t, "status", "--service-name="+s.name); code != 1 || !strings.Contains(output, "not installed") {
			t.Errorf("removed, its status is %d: %s", code, output)
		}
	}
	if !gone(filesystemV1) {
		t.Error("removed, it still serves")
	}
	if _, code := verb(t, "start", "--service-name="+s.name); code != 1 {
		t.Errorf("start of a service that is not there ends with %d", code)
	}
	for _, words := range []string{"csi-proxy starts", "csi-proxy has stopped"} {
		if text, err := os.ReadFile(s.log); err != nil || strings.Count(string(text), words) != 2 {
			t.Errorf("the log does not say twice %q (%v)", words, err)
		}
	}
}

// hang makes a call of the simulated machine hang until the test's end.
func (p *process) hang(t *testing.T, call string) {
	t.Helper()
	p.steer(t, "POST", "/faults", map[string]any{"call": call, "action": "hang"}, nil)
}

// A service that is stopped during a call waits for it up to the drain timeout and then
// cancels it. When the manager reports the service stopped, no call is answered.
func TestService_stopDuringACall(t *testing.T) {
	s := install(t)
	s.must(t, "start")
	s.ready(t)
	s.hang(t, "Devices.Reenumerate")
	connection, other := connect(t, `\\.\pipe\csi-proxy-disk-v1`), connect(t, filesystemV1)
	if _, err := exists(t, other, `C:\nowhere`); status.Code(err) != codes.InvalidArgument {
		t.Fatalf("a call before the stop: %v", err)
	}
	answered := make(chan error, 1)
	go func() {
		answered <- invoke(t, connection, "/v1.Disk/Rescan", &disk.RescanRequest{}, &emptypb.Empty{})
	}()
	time.Sleep(500 * time.Millisecond)
	begin := time.Now()
	s.must(t, "stop")
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if err := <-answered; status.Code(err) != codes.Unavailable {
		t.Errorf("the call in flight ends with %v", err)
	}
	if _, err := exists(t, other, `C:\nowhere`); status.Code(err) != codes.Unavailable {
		t.Errorf("after the stop a call on an open connection ends with %v", err)
	}
	if !gone(filesystemV1) || !gone(`\\.\pipe\csi-proxy-disk-v1`) {
		t.Error("after the stop there are pipes")
	}
}

// A crash leaves no pipe behind, and the next start serves all of them. wine's
// manager notices a crash only then, and restarts nothing by itself.
func TestService_killedAndStartedAgain(t *testing.T) {
	s := install(t)
	for round := range 3 {
		s.must(t, "start")
		s.ready(t)
		kill(t, s.processID(t))
		for _, definition := range versions() {
			if !gone(definition.Pipe()) {
				t.Errorf("round %d: after the crash there is %s", round, definition.Pipe())
			}
		}
	}
	s.must(t, "start")
	s.ready(t)
}

func kill(t *testing.T, pid uint32) {
	t.Helper()
	process, err := windows.OpenProcess(windows.PROCESS_TERMINATE|windows.SYNCHRONIZE, false, pid)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = windows.CloseHandle(process) }()
	if err := windows.TerminateProcess(process, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := windows.WaitForSingleObject(process, uint32(readyTime/time.Millisecond)); err != nil {
		t.Fatal(err)
	}
}

// Bad command lines end with 2 and change nothing.
func TestService_refusesABadCommandLine(t *testing.T) {
	name := fmt.Sprintf("--service-name=bad-%d", os.Getpid())
	for _, arguments := range [][]string{
		{"install", name, "--kubelet-path=relative"}, {"install", name, "--allow-sid=S-1-1-0"}, {"install", name, "--unknown"},
		{"install", name, "--simulated-control=0.0.0.0:1"}, {"start", name, "now"}, {"nothing"},
	} {
		if output, code := verb(t, arguments...); code != 2 {
			t.Errorf("%q ends with %d: %s", arguments, code, output)
		}
	}
	if output, _ := verb(t, "status", name); !strings.Contains(output, "not installed") {
		t.Errorf("there is a service: %s", output)
	}
}
