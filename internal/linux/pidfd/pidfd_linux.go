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
	"time"

	"golang.org/x/sys/unix"
)

// Process is an open pidfd. It is safe for concurrent use.
type Process struct {
	pid   int
	start uint64
	file  *os.File

	mu     sync.Mutex
	closed bool
	// waiters has the file of each call of Wait: they would share the deadline of one.
	waiters map[*os.File]bool
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
	return &Process{pid: pid, file: os.NewFile(uintptr(descriptor), "pidfd"), waiters: map[*os.File]bool{}}
}

// PID is the process ID, for messages and records.
func (p *Process) PID() int { return p.pid }

// Start is the process's Stat.Start, 0 if New made it.
func (p *Process) Start() uint64 { return p.start }

// Wait returns nil when the process has ended, the context's error if that ends
// first, and os.ErrClosed after Close.
func (p *Process) Wait(ctx context.Context) error {
	waiter, err := p.newWaiter()
	if err != nil {
		return p.explain(err)
	}
	defer p.closeWaiter(waiter)
	defer context.AfterFunc(ctx, func() { interrupt(waiter) })()
	if err = untilEnd(waiter); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return p.explain(err)
}

// WaitUntilClosed is Wait that only Close ends before the process.
func (p *Process) WaitUntilClosed() error {
	waiter, err := p.newWaiter()
	if err != nil {
		return p.explain(err)
	}
	defer p.closeWaiter(waiter)
	return p.explain(untilEnd(waiter))
}

func (p *Process) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case p.isClosed():
		return os.ErrClosed
	}
	return fmt.Errorf("wait for process %d: %w", p.pid, err)
}

func untilEnd(waiter *os.File) error {
	connection, err := waiter.SyscallConn()
	if err != nil {
		return err
	}
	return connection.Read(hasEnded)
}

// interrupt ends the call of Wait that has a file.
func interrupt(waiter *os.File) { _ = waiter.SetReadDeadline(time.Unix(1, 0)) }

// newWaiter returns the file of a call of Wait, which Close interrupts.
func (p *Process) newWaiter() (*os.File, error) {
	waiter, err := p.duplicate()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.Join(os.ErrClosed, waiter.Close())
	}
	p.waiters[waiter] = true
	return waiter, nil
}

func (p *Process) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

func (p *Process) closeWaiter(waiter *os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiters, waiter)
	_ = waiter.Close()
}

// duplicate gives a call of Wait a file, and so a deadline, of its own.
func (p *Process) duplicate() (waiter *os.File, err error) {
	err = p.control(func(descriptor int) error {
		copied, err := unix.FcntlInt(uintptr(descriptor), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			waiter = os.NewFile(uintptr(copied), "pidfd")
		}
		return err
	})
	return waiter, err
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
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for waiter := range p.waiters {
		interrupt(waiter)
	}
	return p.file.Close()
}

// Stat is what /proc/PID/stat says of a process (proc_pid_stat(5)).
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
