package workload

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/host/workload/inside"
	"github.com/holdfast-csi/holdfast/internal/linux/pidfd"
)

// Inspect returns the container's state, and its shim if that runs: the caller waits
// for the process and closes it. If the shim is gone without having recorded its end,
// Inspect records one with the reason; nothing of the container runs then.
func (s Shim) Inspect(reason string) (State, *Process, error) {
	root, err := os.OpenRoot(s.State)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil, nil
	}
	if err != nil {
		return State{}, nil, fmt.Errorf("open the container's state: %w", err)
	}
	defer func() { _ = root.Close() }()
	lock, err := takeLock(root)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return s.adopt(root)
	}
	if err != nil {
		return State{}, nil, err
	}
	defer func() { _ = lock.Close() }()
	state, err := inside.ReadState(root)
	if err != nil || state.Phase != Running {
		return state, nil, err
	}
	if state.BootID != s.BootID {
		reason = ReasonUnknown
	}
	state = state.End(Ended{Finished: time.Now(), ExitCode: inside.LostCode, Reason: reason})
	if reason == ReasonError {
		state.Ended.Signal = int(unix.SIGKILL)
	}
	return state, nil, inside.WriteState(root, state)
}

// takeLock returns the lock file, locked. The error is unix.EWOULDBLOCK if a
// shim lives.
func takeLock(root *os.Root) (*os.File, error) {
	lock, err := root.OpenFile(inside.LockFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the container's lock: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the container: %w", err), lock.Close())
	}
	return lock, nil
}

// adopt opens the shim that has the lock. Process IDs are reused: the process must
// have the shim's start time, too.
func (s Shim) adopt(root *os.Root) (State, *Process, error) {
	state, err := inside.ReadState(root)
	if err != nil {
		return State{}, nil, err
	}
	if state.PID == 0 || state.BootID != s.BootID {
		return state, nil, ErrBusy
	}
	process, err := pidfd.Find(state.PID, state.Birth)
	if process == nil {
		return state, nil, errors.Join(ErrBusy, err) // it has just ended, and releases the lock
	}
	return state, &Process{process}, nil
}

// Start starts the next attempt: the first, the one after an end, or the same again
// if its command was never executed. It returns when the command was executed, or
// could not be, as the state says. If a shim runs, the error is ErrBusy.
func (s Shim) Start(container Container, pause time.Duration) (State, *Process, error) {
	fail := func(err error) (State, *Process, error) {
		return State{}, nil, fmt.Errorf("container %q: %w", container.Name, err)
	}
	if len(container.Command) == 0 {
		return fail(errors.New("no command is given"))
	}
	if err := s.makeDirectories(); err != nil {
		return fail(err)
	}
	root, err := os.OpenRoot(s.State)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = root.Close() }()
	lock, err := takeLock(root)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fail(ErrBusy)
	}
	if err != nil {
		return fail(err)
	}
	defer func() { _ = lock.Close() }()
	state, err := inside.ReadState(root)
	if err != nil {
		return fail(err)
	}
	if state.Phase == Running {
		return fail(ErrBusy) // its end is to be inspected first
	}
	state = state.Next(s.BootID)
	state.Pause = pause
	if err := inside.WriteState(root, state); err != nil {
		return fail(err)
	}
	s.removeOldLogs(state.Attempt)
	if err := s.Failpoints.Hit("workload/intent"); err != nil {
		return fail(err)
	}
	process, err := s.launch(root, lock, container)
	if err != nil {
		return fail(err)
	}
	if state, err = inside.ReadState(root); err != nil || state.Phase == Starting {
		return fail(errors.Join(err, process.abandon(root)))
	}
	if err := s.Failpoints.Hit("workload/started"); err != nil {
		return fail(errors.Join(err, process.Close()))
	}
	return state, process, nil
}

// abandon ends a shim that recorded no phase, and returns what it wrote to its log.
func (p *Process) abandon(root *os.Root) error {
	failed := p.end()
	words, err := root.ReadFile(inside.WordsFile)
	if err != nil || len(words) == 0 {
		words = []byte("no reason is known")
	}
	return errors.Join(fmt.Errorf("its shim could not start it: %s",
		strings.TrimSpace(string(words[:min(len(words), 1<<10)]))), failed)
}

// end kills the shim and waits up to endLimit for its end.
func (p *Process) end() error {
	_ = p.Signal(unix.SIGKILL)
	limit := time.AfterFunc(endLimit, func() { _ = p.Close() }) // and with it the wait
	p.Wait()
	if !limit.Stop() {
		return nil
	}
	return p.Close()
}

// endLimit is how long a shim that was killed is waited for.
const endLimit = 10 * time.Second

func (s Shim) makeDirectories() error {
	for _, directory := range []string{s.State, s.Logs} {
		if err := os.MkdirAll(directory, 0o750); err != nil {
			return fmt.Errorf("make the container's directories: %w", err)
		}
		parent, err := os.OpenRoot(filepath.Dir(directory))
		if err != nil {
			return fmt.Errorf("make the container's directories: %w", err)
		}
		if err := errors.Join(durable.SyncDir(parent, "."), parent.Close()); err != nil {
			return err
		}
	}
	return nil
}

// launch starts the shim with the lock, and waits until it has executed the
// command or given up.
func (s Shim) launch(root *os.Root, lock *os.File, container Container) (*Process, error) {
	words, err := root.OpenFile(inside.WordsFile, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the shim's log: %w", err)
	}
	defer func() { _ = words.Close() }()
	files, err := newPipes()
	if err != nil {
		return nil, err
	}
	defer files.close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	process, err := fork([]*os.File{null, null, words, files.childSpec, files.childStat, lock})
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	files.closeChildEnds()
	if err := s.Failpoints.Hit("workload/forked"); err != nil {
		return nil, errors.Join(err, process.end())
	}
	if err := s.handOver(files, container); err != nil {
		return nil, errors.Join(err, process.end())
	}
	return process, nil
}

// handOver sends the order to the shim, and returns when the command was executed, or
// could not be: the state says which.
func (s Shim) handOver(files *pipes, container Container) error {
	order := inside.Order{Container: container, Shim: &inside.ShimOrder{
		State: s.State, Logs: s.Logs, LogLimit: cmp.Or(s.LogLimit, DefaultLogLimit),
	}}
	limit := cmp.Or(s.StartLimit, DefaultStartLimit)
	deadline := time.Now().Add(limit)
	if err := errors.Join(files.spec.SetWriteDeadline(deadline), files.status.SetReadDeadline(deadline)); err != nil {
		return err
	}
	err := json.NewEncoder(files.spec).Encode(order)
	if err == nil {
		err = files.spec.Close() // the shim runs nothing before the end of the order
	}
	if err == nil {
		_, err = io.Copy(io.Discard, files.status)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("its shim did not start it within %s: a filesystem of this machine may not answer", limit)
	}
	if err != nil {
		return fmt.Errorf("send the container's order: %w", err)
	}
	return nil
}

// firstOther is the first descriptor after the standard ones.
const firstOther = 3

// fork starts this program as a shim with the files as its descriptors. The process has
// a pidfd from its birth on.
func fork(files []*os.File) (*Process, error) {
	var descriptors []uintptr
	for _, file := range files {
		descriptors = append(descriptors, file.Fd())
	}
	// What this process was given by who started it is not for containers. Go's
	// own descriptors are closed anyway; an older kernel leaves the others open.
	_ = unix.CloseRange(firstOther, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	descriptor := -1
	// Not os.Executable: see prepare.
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"holdfast", ChildCommand}, &syscall.ProcAttr{
		Dir: "/", Env: shimEnvironment(), Files: descriptors,
		Sys: &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
			Setsid:     true, // no terminal, and no signal that is meant for the host's group
			PidFD:      &descriptor,
		},
	})
	if err != nil {
		return nil, err
	}
	if descriptor < 0 {
		return nil, errors.New("this kernel gives no process descriptors (Linux 5.4 does)")
	}
	return &Process{pidfd.New(descriptor, pid)}, nil
}

// shimEnvironment keeps the shim's own memory low. It hardly allocates, and a
// collection would read the whole binary's variables into its memory: there is
// none before the limit.
func shimEnvironment() []string { return []string{"GOGC=off", "GOMEMLIMIT=8MiB", "GOMAXPROCS=1"} }

// Process is a running shim. It passes a signal on to the command, except for
// SIGKILL, which ends the container.
type Process struct{ *pidfd.Process }

// Wait returns true when the shim, and with it everything in the container, has
// ended, and false when Close was called before.
func (p *Process) Wait() bool {
	err := p.WaitUntilClosed()
	if err == nil {
		p.Reap() // if it is a child of this process
	}
	return err == nil
}
