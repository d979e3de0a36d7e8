package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/workload/inside"
)

// maximumStatus bounds the report of a child's failure.
const maximumStatus = 64 << 10

// Run runs a container to its end and returns its exit code: 128 and the
// signal's number when it was killed by one, as shells do. Signals are passed
// on to the command as they come; when the context ends it gets SIGTERM, and
// SIGKILL once its grace period is over. An error means that the command did
// not run.
func Run(ctx context.Context, container Container, streams Streams, signals <-chan os.Signal) (int, error) {
	command, files, err := prepare(container, streams)
	if err != nil {
		return 0, fmt.Errorf("container %q: %w", container.Name, err)
	}
	defer files.close()
	outcome := make(chan result, 1)
	started := make(chan error, 1)
	go func() {
		// The parent-death signal is tied to the thread that starts the child
		// (prctl(2), PR_SET_PDEATHSIG): it has to live until the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			outcome <- result{command.Wait(), command.ProcessState}
		}
	}()
	if err := <-started; err != nil {
		return 0, fmt.Errorf("container %q: start: %w", container.Name, err)
	}
	files.closeChildEnds()
	if err := json.NewEncoder(files.spec).Encode(container); err != nil {
		err = errors.Join(fmt.Errorf("container %q: send the container's order: %w", container.Name, err),
			command.Process.Kill())
		<-outcome
		return 0, err
	}
	var ended result
	if container.Direct {
		ended = passOn(command.Process, container.Terminal, signals, outcome)
	} else {
		ended = supervise(ctx, command.Process, container.GracePeriod, signals, outcome)
	}
	if reason := files.reason(); reason != "" {
		return 0, fmt.Errorf("container %q: %s", container.Name, reason)
	}
	return ended.code(container.Name)
}

type result struct {
	err   error
	state *os.ProcessState
}

func (r result) code(name string) (int, error) {
	if r.err != nil && r.state == nil {
		return 0, fmt.Errorf("container %q: %w", name, r.err)
	}
	if status, ok := r.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return r.state.ExitCode(), nil
}

// supervise passes signals on until the child ends.
func supervise(
	ctx context.Context, child *os.Process, grace time.Duration, signals <-chan os.Signal, outcome <-chan result,
) result {
	var deadline <-chan time.Time
	done := ctx.Done()
	terminating := false
	for {
		select {
		case ended := <-outcome:
			return ended
		case sent := <-signals:
			if terminating && isTermination(sent) {
				sent = syscall.SIGKILL // asked twice
			}
			_ = child.Signal(sent) // fails only when it has just ended
			if isTermination(sent) && !terminating {
				terminating, deadline = true, time.After(grace)
			}
		case <-done:
			done = nil
			if !terminating {
				_ = child.Signal(syscall.SIGTERM)
				terminating, deadline = true, time.After(grace)
			}
		case <-deadline:
			_ = child.Signal(syscall.SIGKILL)
		}
	}
}

// passOn lets a direct command decide about its end itself.
func passOn(child *os.Process, terminal bool, signals <-chan os.Signal, outcome <-chan result) result {
	for {
		select {
		case ended := <-outcome:
			return ended
		case sent := <-signals:
			if number, ok := sent.(syscall.Signal); !ok || !terminal || !inside.OfTerminal(number) {
				_ = child.Signal(sent) // fails only when it has just ended
			}
		}
	}
}

func isTermination(signal os.Signal) bool {
	return signal == syscall.SIGTERM || signal == syscall.SIGINT || signal == syscall.SIGQUIT || signal == syscall.SIGHUP
}

// pipes connect parent and child.
type pipes struct {
	spec, status         *os.File // the parent's ends
	childSpec, childStat *os.File
}

func prepare(container Container, streams Streams) (*exec.Cmd, *pipes, error) {
	if len(container.Command) == 0 {
		return nil, nil, errors.New("no command is given")
	}
	files, err := newPipes()
	if err != nil {
		return nil, nil, err
	}
	// Not os.Executable: the file may have been replaced since this process
	// was started; the link leads to the very program that runs.
	command := exec.Command("/proc/self/exe", ChildCommand) //nolint:noctx // supervise ends it, with SIGTERM first
	command.Args[0] = "holdfast"
	command.Env = []string{}
	command.Stdout, command.Stderr = streams.Stdout, streams.Stderr
	if container.Direct {
		command.Stdin = streams.Stdin
	}
	command.ExtraFiles = []*os.File{files.childSpec, files.childStat}
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		// In the new process namespace the child is init: when it is killed, the
		// kernel kills everything it started (pid_namespaces(7)).
		Pdeathsig: syscall.SIGKILL,
		// Its own session: the terminal's Ctrl-C reaches the parent only,
		// which passes it on once.
		Setsid: !container.Terminal,
	}
	return command, files, nil
}

func newPipes() (*pipes, error) {
	childSpec, spec, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	status, childStat, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe: %w", err), childSpec.Close(), spec.Close())
	}
	return &pipes{spec: spec, status: status, childSpec: childSpec, childStat: childStat}, nil
}

func (p *pipes) closeChildEnds() {
	_ = p.childSpec.Close()
	_ = p.childStat.Close()
}

func (p *pipes) close() {
	p.closeChildEnds()
	_ = p.spec.Close()
	_ = p.status.Close()
}

// reason reads why the child could not start the command. The child's end is
// closed by its end or by the start of the command.
func (p *pipes) reason() string {
	text, err := io.ReadAll(io.LimitReader(p.status, maximumStatus))
	if err != nil {
		return ""
	}
	return string(text)
}
