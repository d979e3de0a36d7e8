package pidfd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Process is an open pidfd. It is safe for concurrent use.
type Process struct {
	pid   int
	start uint64
	file  *os.File

	closed atomic.Bool
	watch  sync.Once
	// ended is closed when the process has ended or the pidfd is closed; failure is nil
	// in the first case.
	ended   chan struct{}
	failure error
}

// Find opens the process with a process ID and a start time (Stat.Start; 0 if that is
// not known). It returns nil if that process is gone.
func Find(pid int, start uint64) (*Process, error) {
	descriptor, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, unlessGone(fmt.Errorf("open process %d: %w", pid, err))
	}
	p := New(descriptor, pid)
	// Read after the pidfd was opened, this is its process, or that has ended.
	stat, err := StatOf(strconv.Itoa(pid))
	if err != nil || start != 0 && stat.Start != start {
		return nil, errors.Join(unlessGone(err), p.Close())
	}
	p.start = stat.Start
	return p, nil
}

func unlessGone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// New takes over a pidfd.
func New(descriptor, pid int) *Process {
	_ = unix.SetNonblock(descriptor, true) // the runtime's poller waits for it, not a thread
	return &Process{pid: pid, file: os.NewFile(uintptr(descriptor), "pidfd"), ended: make(chan struct{})}
}

// PID is the process ID, for messages and records.
func (p *Process) PID() int { return p.pid }

// Start is the process's Stat.Start, 0 if New made it.
func (p *Process) Start() uint64 { return p.start }

// Wait returns nil when the process has ended, the context's error if that ends
// first, and os.ErrClosed after Close.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.end():
		return p.outcome()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WaitUntilClosed is Wait that only Close ends before the process.
func (p *Process) WaitUntilClosed() error {
	<-p.end()
	return p.outcome()
}

// end returns a channel that is closed with the process or the pidfd. One goroutine
// waits for all callers, so that a wait needs no descriptor of its own.
func (p *Process) end() <-chan struct{} {
	p.watch.Do(func() {
		go func() {
			defer close(p.ended)
			p.failure = p.untilEnd()
		}()
	})
	return p.ended
}

func (p *Process) untilEnd() error {
	connection, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	return connection.Read(hasEnded)
}

func (p *Process) outcome() error {
	switch {
	case p.failure == nil:
		return nil
	case p.closed.Load():
		return os.ErrClosed
	}
	return fmt.Errorf("wait for process %d: %w", p.pid, p.failure)
}

// hasEnded reports whether the process of a pidfd has ended: the pidfd is readable then.
func hasEnded(descriptor uintptr) bool {
	events := []unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}} //nolint:gosec // a descriptor is small
	n, err := unix.Poll(events, 0)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

// Signal sends a signal to the process. It is not an error if the process has ended.
func (p *Process) Signal(signal unix.Signal) error {
	err := p.control(func(descriptor int) error { return unix.PidfdSendSignal(descriptor, signal, nil, 0) })
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// Reap collects the exit status of a child that has ended.
func (p *Process) Reap() {
	_ = p.control(func(descriptor int) error {
		return unix.Waitid(unix.P_PIDFD, descriptor, nil, unix.WEXITED|unix.WNOHANG, nil)
	})
}

// File is another descriptor of the process, for setns(2) or a child; the caller closes it.
func (p *Process) File() (file *os.File, err error) {
	err = p.control(func(descriptor int) error {
		other, err := unix.FcntlInt(uintptr(descriptor), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			file = os.NewFile(uintptr(other), "pidfd")
		}
		return err
	})
	return file, err
}

func (p *Process) control(do func(descriptor int) error) error {
	connection, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = connection.Control(func(descriptor uintptr) { failed = do(int(descriptor)) }) //nolint:gosec // a descriptor is small
	return errors.Join(err, failed)
}

// Close closes the pidfd and ends all calls of Wait; the process continues.
func (p *Process) Close() error {
	p.closed.Store(true)
	return p.file.Close()
}

// Stat has fields of /proc/PID/stat (proc_pid_stat(5)).
type Stat struct {
	State  string // Z for a process that ended and was not reaped
	Parent int
	// Start is the start time in clock ticks since the boot.
	Start uint64
}

// Indices in /proc/PID/stat behind the command's name (fields 3, 4 and 22).
const (
	stateField  = 0
	parentField = 1
	startField  = 19
)

// HasEnded reports whether the process with a process ID and a start time is gone, or
// waits for its parent to reap it. A process that cannot be read is taken to run.
func HasEnded(pid int, start uint64) bool {
	stat, err := StatOf(strconv.Itoa(pid))
	if err != nil {
		return unlessGone(err) == nil
	}
	return stat.Start != start || stat.State == "Z" || stat.State == "X"
}

// StatOf reads the Stat of a process ID, or of "self".
func StatOf(pid string) (stat Stat, err error) {
	data, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return stat, err
	}
	// The command's name is in parentheses and may have any character.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) <= startField {
		return stat, fmt.Errorf("/proc/%s/stat has %d fields behind the name", pid, len(fields))
	}
	stat.State = fields[stateField]
	if stat.Parent, err = strconv.Atoi(fields[parentField]); err != nil {
		return stat, err
	}
	stat.Start, err = strconv.ParseUint(fields[startField], 10, 64)
	return stat, err
}
