package syscallfault

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call is a system call that the function is about to make.
type Call struct {
	Number int    // from 1
	Name   string // such as fsync
	Path   string // of the file or directory
	// Request is the second argument: the request of an ioctl(2).
	Request uint64
}

// String names the call in the messages of a test.
func (c Call) String() string { return fmt.Sprintf("%d %s %s", c.Number, c.Name, c.Path) }

// Plan decides about a call: 0 lets the kernel execute it; any other value is the
// error that the function gets instead. A plan must not block and runs on another
// goroutine than the function.
type Plan func(Call) unix.Errno

// Pretend is the value of a plan by which a call returns 0 and is not executed, such as
// an fsync(2) that a program forgot. No error of the kernel has it (linux/err.h).
const Pretend unix.Errno = 4096 //nolint:errname // an action of a plan, not an error

// Once fails the call with that number.
func Once(number int, errno unix.Errno) Plan {
	return func(c Call) unix.Errno {
		if c.Number == number {
			return errno
		}
		return 0
	}
}

// From fails the call with that number and all later ones.
func From(number int, errno unix.Errno) Plan {
	return func(c Call) unix.Errno {
		if c.Number >= number {
			return errno
		}
		return 0
	}
}

// Run executes f and asks the plan before every system call of f that concerns
// a file at or below one of the directories. Calls of goroutines that f starts
// are not seen. It returns the calls; the error is that of the filter.
func Run(directories []string, plan Plan, f func()) ([]Call, error) {
	s := &supervisor{directories: directories, plan: plan}
	installed, ended := make(chan error, 1), make(chan struct{})
	go onOwnThread(func() {
		defer close(ended)
		listener, err := install()
		s.listener = listener
		installed <- err
		if err == nil {
			defer func() { s.panicked = recover() }()
			f()
		}
	})
	if err := <-installed; err != nil {
		<-ended
		return nil, err
	}
	err := s.serve()
	<-ended
	err = errors.Join(err, unix.Close(s.listener))
	if s.panicked != nil {
		panic(s.panicked)
	}
	return s.calls, err
}

// onOwnThread calls f on a thread that ends with it, and with the thread ends
// what f installed: a goroutine that returns while it is locked ends its thread.
// The first thread of the process is the exception, so another one is taken.
func onOwnThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		onOwnThread(f)
	}()
	<-done
	runtime.UnlockOSThread()
}

type supervisor struct {
	listener    int
	directories []string
	plan        Plan
	calls       []Call
	panicked    any // what f panicked with; Run panics with it in its turn
}

// notification is struct seccomp_notif, response struct seccomp_notif_resp
// (linux/seccomp.h).
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	data  callData
}

type callData struct {
	number  int32
	arch    uint32
	pointer uint64
	args    [6]uint64
}

type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// serve answers until the thread of the function is gone.
func (s *supervisor) serve() error {
	for {
		ready := []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return fmt.Errorf("wait for a system call: %w", err)
		}
		if ready[0].Revents&unix.POLLIN == 0 {
			return nil // POLLHUP: no thread has the filter any more
		}
		var asked notification
		if errno := control(s.listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&asked)); errno == unix.ENOENT ||
			errno == unix.EINTR {
			continue // the call was interrupted and will be made again
		} else if errno != 0 {
			return fmt.Errorf("receive a system call: %w", errno)
		}
		answer := response{id: asked.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		switch errno := s.judge(asked.data); errno {
		case 0:
		case Pretend:
			answer.flags = 0
		default:
			answer.flags, answer.errno = 0, -int32(errno)
		}
		if errno := control(s.listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&answer)); errno != 0 &&
			errno != unix.ENOENT {
			return fmt.Errorf("answer a system call: %w", errno)
		}
	}
}

func (s *supervisor) judge(data callData) unix.Errno {
	traced, ok := tracedCalls[uint32(data.number)]
	if !ok {
		return 0
	}
	path := traced.path(data.args)
	for _, directory := range s.directories {
		if path == directory || strings.HasPrefix(path, directory+"/") {
			call := Call{Number: len(s.calls) + 1, Name: traced.name, Path: path, Request: data.args[1]}
			s.calls = append(s.calls, call)
			return s.plan(call)
		}
	}
	return 0
}

func control(fd int, request uint, argument unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(argument))
	return errno
}

// pathOf is the file behind a descriptor of this process.
func pathOf(fd uint64) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", int32(fd)))
	if err != nil {
		return ""
	}
	return path
}

// pathAt is a name relative to a directory.
func pathAt(directory, name uint64) string {
	text := make([]byte, unix.PathMax)
	remote := []unix.RemoteIovec{{Base: uintptr(name), Len: len(text)}}
	n, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{{Base: &text[0], Len: uint64(len(text))}}, remote, 0)
	if err != nil {
		return ""
	}
	relative, _, _ := strings.Cut(string(text[:n]), "\x00")
	if filepath.IsAbs(relative) {
		return relative
	}
	return filepath.Join(pathOf(directory), relative)
}
