package inside

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/linux/pidfd"
)

// drainTimeout bounds the wait for output after the container's last process ended.
const drainTimeout = 2 * time.Second

// shim is the side of a shim inside: everything it needs of the machine is open
// before its root is the container's.
type shim struct {
	state *os.Root
	logs  *logWriter
	now   State
}

func openShim(o ShimOrder) (*shim, error) {
	root, err := os.OpenRoot(o.State)
	if err != nil {
		return nil, fmt.Errorf("open the container's state: %w", err)
	}
	now, err := ReadState(root)
	if err != nil {
		return nil, err
	}
	if now.Phase != Starting {
		return nil, fmt.Errorf("the container's state is %q; want %q", now.Phase, Starting)
	}
	// /proc is still the machine's: it has the process ID by which the host knows
	// this process.
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Sscan(self, &now.PID); err != nil {
		return nil, err
	}
	stat, err := pidfd.StatOf("self")
	if err != nil {
		return nil, err
	}
	now.Birth = stat.Start
	logs, err := newLogWriter(o.Logs, now.Attempt, o.LogLimit)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return &shim{state: root, logs: logs, now: now}, nil
}

// runShim runs the container to its end, which is in the state file then.
func runShim(o Order, status *os.File) error {
	// Kept open, and locked, until this process ends.
	unix.CloseOnExec(LockDescriptor)
	s, err := openShim(*o.Shim)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	if err := buildView(o.Container); err != nil {
		return s.end(Ended{ExitCode: startErrorCode, Reason: ReasonStartError, Message: err.Error()})
	}
	out, err := s.openStreams()
	if err != nil {
		return err
	}
	s.now.Phase, s.now.Started = Running, time.Now()
	if err := WriteState(s.state, s.now); err != nil {
		return err
	}
	input, err := inputOf(o.Container)
	if err != nil {
		return err
	}
	pid, err := startCommand(o.Container, []*os.File{input, out.stdout, out.stderr}, syscall.SysProcAttr{})
	_ = input.Close()
	if err != nil {
		code, failure := reportStart(o.Container, out.stderr, err)
		out.finish()
		if failure != nil {
			return s.end(Ended{ExitCode: startErrorCode, Reason: ReasonStartError, Message: failure.Error()})
		}
		return s.end(Ended{ExitCode: code, Reason: ReasonError, Message: err.Error()})
	}
	out.closeWriters()
	if err := status.Close(); err != nil {
		return err
	}
	go passOn(signals, pid, false)
	ended, err := reap(pid)
	if err != nil {
		return err
	}
	// The others in the container end with their init; now, so that what they
	// wrote last is read.
	_ = unix.Kill(-1, unix.SIGKILL)
	out.finish()
	return s.end(endOf(ended))
}

func endOf(status unix.WaitStatus) Ended {
	if status.Signaled() {
		return Ended{ExitCode: 128 + int(status.Signal()), Signal: int(status.Signal()), Reason: ReasonError}
	}
	if status.ExitStatus() != 0 {
		return Ended{ExitCode: status.ExitStatus(), Reason: ReasonError}
	}
	return Ended{Reason: ReasonCompleted}
}

// end writes the container's end. On a full disk it waits until there is room:
// the exit code is lost with this process, and the pod would fail, or be run
// again, for want of some bytes.
func (s *shim) end(ended Ended) error {
	ended.Finished = time.Now()
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := WriteState(s.state, s.now.End(ended))
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
			return err
		}
		time.Sleep(pause)
	}
}

// streams are the pipes from the command to the log.
type streams struct {
	stdout, stderr         *os.File // the command's ends
	readStdout, readStderr *os.File
	pumps                  sync.WaitGroup
}

func (s *shim) openStreams() (*streams, error) {
	out := &streams{}
	var err error
	if out.readStdout, out.stdout, err = os.Pipe(); err != nil {
		return nil, err
	}
	if out.readStderr, out.stderr, err = os.Pipe(); err != nil {
		return nil, err
	}
	pump := func(name string, source io.Reader) { out.pumps.Go(func() { s.logs.pump(name, source) }) }
	pump("stdout", out.readStdout)
	pump("stderr", out.readStderr)
	return out, nil
}

func (o *streams) closeWriters() {
	_ = o.stdout.Close()
	_ = o.stderr.Close()
}

// finish reads the rest. A descriptor that was handed to a process outside
// does not keep the container from ending.
func (o *streams) finish() {
	o.closeWriters()
	deadline := time.Now().Add(drainTimeout)
	_ = o.readStdout.SetReadDeadline(deadline)
	_ = o.readStderr.SetReadDeadline(deadline)
	o.pumps.Wait()
}
