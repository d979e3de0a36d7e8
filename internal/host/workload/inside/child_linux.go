package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit codes for a command that cannot be executed, as shells have them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

func notForUsers() int {
	fmt.Fprintln(os.Stderr, "holdfast: this command is for holdfast's own use")
	return 2
}

// Child is the other side of Run: init of the container's process namespace.
// It builds the view, starts the command, passes signals on, collects orphans
// and returns the command's exit code. It must be the first thing that its
// process does.
func Child() int {
	// The command gets the standard descriptors only: neither the two below nor any
	// that the parent inherited.
	unix.CloseOnExec(SpecDescriptor)
	unix.CloseOnExec(StatusDescriptor)
	_ = unix.CloseRange(SpecDescriptor, math.MaxInt32,
		unix.CLOSE_RANGE_CLOEXEC) // a kernel before 5.11 makes no view either
	spec := os.NewFile(SpecDescriptor, "spec")
	status := os.NewFile(StatusDescriptor, "status")
	if spec == nil || status == nil {
		return notForUsers()
	}
	code, err := runChild(spec, status)
	if err != nil {
		_, _ = io.WriteString(status, err.Error()) // the parent may be gone
		return 1
	}
	return code
}

func runChild(spec, status *os.File) (int, error) {
	var order Order
	decoder := json.NewDecoder(spec)
	if err := decoder.Decode(&order); err != nil {
		return 0, fmt.Errorf("read the container's order: %w", err)
	}
	if order.Enter != nil {
		return runEnter(order, spec, status)
	}
	if order.Copy != nil {
		return 0, runCopy(order, spec)
	}
	if os.Getpid() != 1 {
		return notForUsers(), nil
	}
	if order.Shim != nil {
		err := runShim(order, status)
		if err != nil {
			fmt.Fprintln(os.Stderr, err) // the host reads it, if it is still there
		}
		return 0, err
	}
	container := order.Container
	go endWithParent(spec)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	if err := buildView(container); err != nil {
		return 0, err
	}
	input, err := inputOf(container)
	if err != nil {
		return 0, err
	}
	pid, err := startCommand(container, []*os.File{input, os.Stdout, os.Stderr}, syscall.SysProcAttr{})
	if err != nil {
		return reportStart(container, os.Stderr, err)
	}
	if err := status.Close(); err != nil {
		return 0, err
	}
	go passOn(signals, pid, container.Terminal)
	ended, err := reap(pid)
	if err != nil {
		return 0, err
	}
	return endOf(ended).ExitCode, nil
}

// endWithParent covers the time between the start of this process and its request
// for the parent-death signal: the end of the pipe means that the parent has ended.
func endWithParent(spec *os.File) {
	_, _ = io.Copy(io.Discard, spec)
	os.Exit(128 + int(unix.SIGKILL))
}

// passOn passes signals on, but for those of a terminal that the command has
// itself.
func passOn(signals <-chan os.Signal, pid int, terminal bool) {
	for sent := range signals {
		number, ok := sent.(syscall.Signal)
		if ok && terminal && OfTerminal(number) {
			continue
		}
		if !ok || number == unix.SIGCHLD || number == unix.SIGURG || number == unix.SIGPIPE {
			continue // SIGURG is the Go runtime's own
		}
		_ = unix.Kill(pid, number)
	}
}

// reap waits for the command and meanwhile for the orphans that become
// children of init.
func reap(command int) (unix.WaitStatus, error) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("wait for the command: %w", err)
		case pid == command && (status.Exited() || status.Signaled()):
			return status, nil
		}
	}
}

// OfTerminal reports whether a terminal sends a signal to every process of the
// foreground (termios(3)).
func OfTerminal(number syscall.Signal) bool {
	switch number {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGWINCH, unix.SIGCONT:
		return true
	}
	return false
}

// inputOf is the standard input of a container's command.
func inputOf(container Container) (*os.File, error) {
	if container.Direct {
		return os.Stdin, nil
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("open the command's input: %w", err)
	}
	return null, nil
}

// startCommand executes the command in the view that is now the root, with the files as
// its standard input, output and error.
func startCommand(container Container, files []*os.File, attributes syscall.SysProcAttr) (int, error) {
	path, err := lookPath(container)
	if err != nil {
		return 0, err
	}
	if info, err := os.Stat(container.Directory); err != nil || !info.IsDir() {
		return 0, fmt.Errorf("workingDir: %s is not a directory on this machine", container.Directory)
	}
	// Capabilities and no_new_privs belong to the thread that forks.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := restrict(container); err != nil {
		return 0, err
	}
	attributes.Credential = &syscall.Credential{Uid: container.UID, Gid: container.GID, Groups: container.Groups}
	pid, err := syscall.ForkExec(path, container.Command, &syscall.ProcAttr{
		Dir: container.Directory, Env: container.Env, Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()}, Sys: &attributes,
	})
	if err != nil {
		return 0, &fs.PathError{Op: "execute", Path: path, Err: err}
	}
	return pid, nil
}

// lookPath finds the command in the container's own PATH.
func lookPath(container Container) (string, error) {
	name := container.Command[0]
	if strings.Contains(name, "/") {
		if filepath.IsAbs(name) {
			return name, nil
		}
		return filepath.Join(container.Directory, name), nil
	}
	for _, variable := range container.Env {
		list, found := strings.CutPrefix(variable, "PATH=")
		if !found {
			continue
		}
		for _, directory := range filepath.SplitList(list) {
			path := filepath.Join(directory, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// reportStart answers as a shell for a command that cannot be executed; the machine has
// other programs than the image.
func reportStart(container Container, stderr io.Writer, err error) (int, error) {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		hint := " (the image is not used: the command must exist on this machine)"
		if container.Direct {
			hint = ""
		}
		_, _ = fmt.Fprintf(stderr, "holdfast: container %q: %v%s\n", container.Name, err, hint)
		return exitNotFound, nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.ENOTDIR):
		_, _ = fmt.Fprintf(stderr, "holdfast: container %q: %v\n", container.Name, err)
		return exitNotExecutable, nil
	}
	return 0, err
}
