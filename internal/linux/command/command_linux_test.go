package command

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRun_anExitCodeIsNotAnError(t *testing.T) {
	got, err := NewSystem().Run(t.Context(), Command{Name: "sh", Args: []string{"-c", "cat; echo bad >&2; exit 3"}, Stdin: []byte("in")})
	if err != nil {
		t.Fatal(err)
	}
	if got.ExitCode != 3 || string(got.Stdout) != "in" || string(got.Stderr) != "bad\n" {
		t.Fatalf("got %d %q %q", got.ExitCode, got.Stdout, got.Stderr)
	}
}

func TestRun_missingProgramNamesIt(t *testing.T) {
	_, err := NewSystem().Run(t.Context(), Command{Name: "mkfs.of-no-kind"})
	if err == nil || !strings.Contains(err.Error(), "mkfs.of-no-kind") {
		t.Fatalf("error %v", err)
	}
}

func TestRun_findsToolsThatPathLacks(t *testing.T) {
	t.Setenv("PATH", "/nonexistent")
	got, err := NewSystem().Run(t.Context(), Command{Name: "mke2fs", Args: []string{"-V"}})
	if err != nil || got.ExitCode != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestRun_killsTheWholeGroupWhenTheContextEnds(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			if data, _ := os.ReadFile(pidFile); bytes.HasSuffix(data, []byte("\n")) {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	start := time.Now()
	_, err := NewSystem().Run(ctx, Command{Name: "sh", Args: []string{"-c", "sleep 100 & echo $! > \"$0\"; wait", pidFile}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v; want the context's", err)
	}
	if took := time.Since(start); took > 90*time.Second { // it would be 100
		t.Fatalf("took %v", took)
	}
	expectGone(t, pidFile)
}

func expectGone(t *testing.T, pidFile string) {
	t.Helper()
	data, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	for range 6000 {
		if !running(pid) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("grandchild %d outlived the context", pid)
}

// running reports whether the process exists and is not a zombie: in a container
// no process may reap what lost its parent.
func running(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestRun_endsAtItsTimeout(t *testing.T) {
	_, err := NewSystem().Run(t.Context(), Command{Name: "sleep", Args: []string{"100"}, Timeout: 20 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "20ms") {
		t.Fatalf("error %v; want one that names the limit", err)
	}
}

func TestRun_keepsBothEndsOfALongOutput(t *testing.T) {
	got, err := NewSystem().Run(t.Context(), Command{Name: "sh", Args: []string{"-c", "echo first; yes | head -n 100000; echo last"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Stdout) > outputLimit+16 || !bytes.HasPrefix(got.Stdout, []byte("first\n")) || !bytes.HasSuffix(got.Stdout, []byte("last\n")) {
		t.Fatalf("%d bytes, from %q to %q", len(got.Stdout), got.Stdout[:8], got.Stdout[len(got.Stdout)-8:])
	}
}

func TestRun_childSeesNoVariableOfOurs(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "do-not-leak")
	got, err := NewSystem().Run(t.Context(), Command{Name: "env"})
	if err != nil || strings.Contains(string(got.Stdout), "do-not-leak") {
		t.Fatalf("environment %q, %v", got.Stdout, err)
	}
}

func TestRun_signalIsAnError(t *testing.T) {
	_, err := NewSystem().Run(t.Context(), Command{Name: "sh", Args: []string{"-c", "kill -SEGV $$"}})
	if err == nil || !strings.Contains(err.Error(), "segmentation") {
		t.Fatalf("error %v", err)
	}
}
