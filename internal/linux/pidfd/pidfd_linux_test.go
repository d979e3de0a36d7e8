package pidfd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func running(t *testing.T) (*exec.Cmd, *Process) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "sleep", "600")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	p, err := Find(command.Process.Pid, 0)
	if p == nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return command, p
}

// The end of one call's context ends no other call.
func TestWait_endsWithItsOwnContextOnly(t *testing.T) {
	_, p := running(t)
	first, cancel := context.WithCancel(t.Context())
	ends := make(chan error, 2)
	go func() { ends <- p.Wait(first) }()
	go func() { ends <- p.Wait(t.Context()) }()
	cancel()
	if err := <-ends; !errors.Is(err, context.Canceled) {
		t.Errorf("the first call that ended returned %v", err)
	}
	if err := p.Wait(first); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ends; err != nil {
		t.Errorf("after the process ended: %v", err)
	}
	if err := p.Signal(unix.SIGTERM); err != nil {
		t.Errorf("a signal after the end: %v", err)
	}
}

func TestClose_endsEveryWait(t *testing.T) {
	_, p := running(t)
	ended := make(chan error, 1)
	go func() { ended <- p.Wait(t.Context()) }()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// A host without free descriptors detects the end of its processes.
func TestWait_needsNoDescriptor(t *testing.T) {
	_, p := running(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Wait(t.Context()) }()
	signalled := p.Signal(unix.SIGKILL)
	err := <-ended
	if restored := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); restored != nil {
		t.Fatal(restored)
	}
	if err != nil || signalled != nil {
		t.Errorf("wait: %v, signal: %v", err, signalled)
	}
}

func TestFind_onlyTheProcessOfTheStartTime(t *testing.T) {
	command, p := running(t)
	stat, err := StatOf(strconv.Itoa(p.PID()))
	if err != nil || stat.Parent != os.Getpid() || stat.Start == 0 || stat.State == "Z" {
		t.Errorf("%+v, %v", stat, err)
	}
	if err := errors.Join(p.Signal(unix.SIGKILL), p.Wait(t.Context())); err != nil {
		t.Fatal(err)
	}
	if p.Start() != stat.Start {
		t.Errorf("Find read the start time %d, not %d", p.Start(), stat.Start)
	}
	if other, err := Find(p.PID(), stat.Start+1); other != nil || err != nil {
		t.Errorf("another process of that process ID: %v, %v", other, err)
	}
	if dead, err := StatOf(strconv.Itoa(p.PID())); err != nil || dead.State != "Z" || dead.Start != stat.Start {
		t.Errorf("before it is reaped: %+v, %v", dead, err)
	}
	_ = command.Wait()
	if gone, err := Find(p.PID(), stat.Start); gone != nil || err != nil {
		t.Errorf("after it is reaped: %v, %v", gone, err)
	}
}
