package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/workload/inside"
	"github.com/holdfast-csi/holdfast/internal/linux/pidfd"
)

// Exec runs a command in the namespaces of the container while that runs, and returns the
// command's exit code. When the context ends, the command gets SIGHUP and SIGTERM, and
// SIGKILL later. An error means that the command did not run. The command ends with the
// container, and with this process.
func (s Shim) Exec(ctx context.Context, container Container, session Session) (int, error) {
	shim, err := s.running()
	if err != nil {
		return 0, err
	}
	defer func() { _ = shim.Close() }()
	stdio, err := openStdio(shim, container, session)
	if err != nil {
		return 0, err
	}
	defer stdio.close()
	if session.Terminal {
		container.Env = withTerminal(container.Env)
	}
	target, err := shim.File()
	if err != nil {
		return 0, err
	}
	defer func() { _ = target.Close() }()
	order := inside.Order{Container: container, Enter: &inside.EnterOrder{Terminal: session.Terminal}}
	return s.serve(ctx, target, stdio, order, session)
}

// serve starts a child with the order and a descriptor of the container, and serves it until
// it ends.
func (s Shim) serve(ctx context.Context, target *os.File, stdio *stdio, order inside.Order, session Session) (int, error) {
	files, err := newPipes()
	if err != nil {
		return 0, err
	}
	defer files.close()
	command := exec.Command("/proc/self/exe", ChildCommand) //nolint:noctx // the end of its pipe ends it, with SIGHUP first
	command.Args[0] = "holdfast"
	command.Env = shimEnvironment()
	if order.Copy != nil {
		command.Env = copyEnvironment()
	}
	command.Dir = "/"
	command.Stdin, command.Stdout, command.Stderr = stdio.child[0], stdio.child[1], stdio.child[2]
	command.ExtraFiles = []*os.File{files.childSpec, files.childStat, target}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return 0, fmt.Errorf("start: %w", err)
	}
	files.closeChildEnds()
	stdio.closeChildEnds()
	return s.attend(ctx, command, files, stdio, order, session)
}

// running opens the shim of the container. The error is ErrNotRunning if there is none.
func (s Shim) running() (*pidfd.Process, error) {
	state, err := s.Last()
	if err != nil {
		return nil, err
	}
	if state.Phase != Running || state.BootID != s.BootID {
		return nil, ErrNotRunning
	}
	process, err := pidfd.Find(state.PID, state.Birth)
	if process == nil && err == nil {
		err = ErrNotRunning
	}
	return process, err
}

// attend sends the order, and serves the command until it ends.
func (s Shim) attend(
	ctx context.Context, command *exec.Cmd, files *pipes, stdio *stdio, order inside.Order, session Session,
) (int, error) {
	ended := make(chan struct{})
	var group sync.WaitGroup
	if err := json.NewEncoder(files.spec).Encode(order); err != nil {
		err = errors.Join(fmt.Errorf("send the command's order: %w", err), files.spec.Close())
		_ = command.Wait()
		return 0, err
	}
	stdio.pump(session)
	group.Go(func() {
		select {
		case <-ctx.Done():
			_ = files.spec.Close()
		case <-ended:
		}
	})
	group.Go(func() {
		for {
			select {
			case sent := <-session.Signals:
				_ = command.Process.Signal(sent) // fails only when it has just ended
			case size := <-session.Sizes:
				stdio.resize(size)
			case <-ended:
				return
			}
		}
	})
	reason := files.reason() // until the command was executed, or could not be
	err := command.Wait()
	close(ended)
	group.Wait()
	stdio.finish()
	if reason != "" {
		return 0, errors.New(reason)
	}
	return result{err, command.ProcessState}.code(order.Name)
}

// stdio is the command's standard input and output: pipes, or a terminal.
type stdio struct {
	child  [3]*os.File
	own    [3]*os.File
	master *os.File // of a terminal; own[0] and own[1] are it
	pumps  sync.WaitGroup
	ended  atomic.Bool // the command has ended
}

func openStdio(shim *pidfd.Process, container Container, session Session) (*stdio, error) {
	if session.Terminal {
		return openTerminal(shim, container)
	}
	s := &stdio{}
	for i := range s.child {
		read, write, err := os.Pipe()
		if err != nil {
			s.close()
			return nil, fmt.Errorf("make a pipe: %w", err)
		}
		if s.child[i], s.own[i] = write, read; i == 0 {
			s.child[i], s.own[i] = read, write
		}
	}
	if session.Stdin == nil {
		_ = s.own[0].Close() // the command reads the end
	}
	return s, nil
}

// pump copies input and output. The input is not waited for: its reader may wait for a
// user.
func (s *stdio) pump(session Session) {
	if session.Stdin != nil {
		go func() {
			_, _ = io.Copy(s.own[0], session.Stdin) // a command may end before it reads all
			if s.master == nil {
				_ = s.own[0].Close()
			}
		}()
	}
	s.pumps.Go(func() { s.output(session.Stdout, s.own[1]) })
	if s.master == nil {
		s.pumps.Go(func() { s.output(session.Stderr, s.own[2]) })
	}
}

// outputBuffer is the unit of reads from the command's output.
const outputBuffer = 32 << 10

// drainBytes bounds what is read after the command's end: as much as a pipe can have
// (pipe(7), pipe-max-size). What comes after it is from what the command left behind.
const drainBytes = 1 << 20

// drainLimit bounds the time for which the rest of the output is waited for, in sum: what
// the command left behind in the container may keep its end open, and write to it.
const drainLimit = time.Second

// output copies an output to its end. After the command's end, only the wait for more is
// bounded: a reader may take its time with what there is.
func (s *stdio) output(to io.Writer, from *os.File) {
	buffer := make([]byte, outputBuffer)
	for drained, wait := 0, drainLimit; drained < drainBytes; {
		rest := s.ended.Load()
		began := time.Now()
		if rest {
			_ = from.SetReadDeadline(began.Add(wait))
		}
		n, err := from.Read(buffer)
		if rest {
			drained += n
			wait -= time.Since(began)
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil { // a terminal ends with EIO
			return
		}
	}
}

// finish waits for the rest of the output.
func (s *stdio) finish() {
	s.ended.Store(true)
	for _, file := range s.own[1:] {
		if file != nil {
			_ = file.SetReadDeadline(time.Now().Add(drainLimit))
		}
	}
	s.pumps.Wait()
}

func (s *stdio) closeChildEnds() {
	for _, file := range s.child {
		if file != nil {
			_ = file.Close()
		}
	}
}

func (s *stdio) close() {
	s.closeChildEnds()
	for _, file := range s.own {
		if file != nil {
			_ = file.Close()
		}
	}
}
