package inside

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endLimit is how long a command in a container that runs may take to end when its caller
// is gone.
const endLimit = 10 * time.Second

// runEnter runs a command in a container that runs: in its view, among its processes, as
// its user and with its capabilities. It is no init: what the command leaves behind belongs
// to the container.
func runEnter(order Order, spec io.Reader, status *os.File) (int, error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	// The namespaces belong to this thread, which is never unlocked. (The command has no
	// parent-death signal: its parent is in no process namespace of its own.)
	runtime.LockOSThread()
	if err := enter(EnterDescriptor); err != nil {
		return 0, err
	}
	attributes := syscall.SysProcAttr{Setsid: true, Setctty: order.Enter.Terminal}
	container := order.Container
	pid, err := startCommand(container, []*os.File{os.Stdin, os.Stdout, os.Stderr}, attributes)
	if err != nil {
		return reportStart(container, os.Stderr, err)
	}
	// The command has them: the end of its input, and of its output, is the other side's
	// to see.
	for _, file := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		_ = file.Close()
	}
	if err := status.Close(); err != nil {
		return 0, err
	}
	go passOnToGroup(signals, pid)
	go endGroup(spec, pid)
	ended, err := reap(pid)
	if err != nil {
		return 0, err
	}
	return endOf(ended).ExitCode, nil
}

// enter moves this thread into the mount namespace of a process, and its children into
// the process namespace.
func enter(pidfd int) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // the root belongs to the thread alone
		return fmt.Errorf("enter the container: %w", err)
	}
	if err := unix.Setns(pidfd, unix.CLONE_NEWNS|unix.CLONE_NEWPID); err != nil {
		return fmt.Errorf("enter the container's namespaces: %w", err)
	}
	return nil
}

// passOnToGroup passes signals on to the command and what it started in its group.
func passOnToGroup(signals <-chan os.Signal, pid int) {
	for sent := range signals {
		number, ok := sent.(syscall.Signal)
		if !ok || number == unix.SIGCHLD || number == unix.SIGURG || number == unix.SIGPIPE {
			continue
		}
		_ = unix.Kill(-pid, number)
	}
}

// endGroup ends the command when the other side has closed the pipe, or is gone.
func endGroup(spec io.Reader, pid int) {
	_, _ = io.Copy(io.Discard, spec)
	_ = unix.Kill(-pid, unix.SIGHUP)
	_ = unix.Kill(-pid, unix.SIGTERM)
	time.Sleep(endLimit)
	_ = unix.Kill(-pid, unix.SIGKILL)
}
