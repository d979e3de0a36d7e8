// Package command is the one way in which Holdfast spawns a program. The node
// engine needs it for mkfs and fsck alone; everything else is done by system
// calls. No shell is ever involved, the environment is a fixed one (so that no
// credential of this process reaches a child), every child has a time limit,
// and its whole process group ends with the caller's context.
package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Limits that apply when a Command does not say otherwise.
const (
	// DefaultTimeout bounds a command without a timeout. The slowest command is a
	// filesystem check of a large device.
	DefaultTimeout = 10 * time.Minute
	// outputLimit is how much of each output stream is kept, in bytes: the first
	// and the last half of it, since tools put the reason at either end.
	outputLimit = 16 << 10
	// reapDelay is how long a killed child may take to disappear. One that waits
	// for a dead device cannot be killed; the caller gets its error all the same.
	reapDelay = 5 * time.Second
)

// ErrNotFound is in the error of a program that is not installed.
var ErrNotFound = exec.ErrNotFound

// Command is a program to run. Name is looked up in PATH and then in the
// directories of administration tools, which root's PATH may lack.
type Command struct {
	Name  string
	Args  []string
	Stdin []byte
	// Timeout bounds the run in addition to the context; 0 means DefaultTimeout.
	Timeout time.Duration
}

// Result is how a program ended. The outputs are truncated to some kilobytes.
type Result struct {
	ExitCode       int
	Stdout, Stderr []byte
}

// Runner runs programs. The error says that the program could not be run or
// did not end by itself; an exit code other than 0 is not an error.
type Runner interface {
	Run(ctx context.Context, c Command) (Result, error)
}

// System is the Runner of this machine. It has no state and may be copied.
type System struct{}

// NewSystem returns the Runner that starts real processes.
func NewSystem() Runner { return System{} }

// Run implements Runner.
func (System) Run(ctx context.Context, c Command) (Result, error) {
	program, err := find(c.Name)
	if err != nil {
		return Result{}, err
	}
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("still running after %v", timeout))
	defer cancel()
	return run(ctx, program, c)
}

// run starts the child and waits for it in a separate goroutine: a child in
// an uninterruptible sleep must not delay the caller longer than reapDelay.
func run(ctx context.Context, program string, c Command) (Result, error) {
	var stdout, stderr clipped
	child := exec.CommandContext(ctx, program, c.Args...)
	child.Env = environment()
	child.Stdin = bytes.NewReader(c.Stdin)
	child.Stdout, child.Stderr = &stdout, &stderr
	child.WaitDelay = reapDelay
	isolate(child)

	done := make(chan error, 1)
	go func() { done <- runOnOneThread(child) }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done:
		case <-time.After(2 * reapDelay):
			return Result{}, fmt.Errorf("run %s: %w, and it cannot be killed: it waits for a device that does not answer",
				c.Name, context.Cause(ctx))
		}
	}
	result := Result{Stdout: stdout.bytes(), Stderr: stderr.bytes()}
	return conclude(ctx, c.Name, child, result, err)
}

// conclude separates a program that said no from one that did not get to speak.
func conclude(ctx context.Context, name string, child *exec.Cmd, result Result, err error) (Result, error) {
	if err != nil && ctx.Err() != nil {
		return result, fmt.Errorf("run %s: killed: %w", name, context.Cause(ctx))
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return result, nil
	case errors.As(err, &exit) && exit.Exited():
		result.ExitCode = exit.ExitCode()
		return result, nil
	case child.ProcessState != nil:
		return result, fmt.Errorf("run %s: %w: %s", name, err, bytes.TrimSpace(result.Stderr))
	}
	return result, fmt.Errorf("run %s: %w", name, err)
}

// environment returns the environment of children: messages in English, and of this
// process' variables only PATH, by which e2fsprogs and others find their helpers.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH") + string(os.PathListSeparator) + "/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C", "HOME=/"}
}

func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, directory := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(directory, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("run %s: %w; install the package that contains it", name, err)
}

// clipped keeps the beginning and the end of its input.
type clipped struct {
	head, tail []byte
	truncated  bool
}

var _ io.Writer = (*clipped)(nil)

func (c *clipped) Write(data []byte) (int, error) {
	n := len(data)
	room := min(outputLimit/2-len(c.head), len(data))
	c.head = append(c.head, data[:room]...)
	c.tail = append(c.tail, data[room:]...)
	if extra := len(c.tail) - outputLimit/2; extra > 0 {
		c.tail = append(c.tail[:0], c.tail[extra:]...)
		c.truncated = true
	}
	return n, nil
}

func (c *clipped) bytes() []byte {
	if !c.truncated {
		return append(c.head, c.tail...)
	}
	return append(append(c.head, "\n[…]\n"...), c.tail...)
}
