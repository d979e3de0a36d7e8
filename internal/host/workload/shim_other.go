//go:build !linux

package workload

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"
)

// Process needs Linux.
type Process struct{}

// Inspect needs Linux: nothing ever runs elsewhere.
func (s Shim) Inspect(string) (State, *Process, error) { return State{}, nil, nil }

// Start needs Linux.
func (s Shim) Start(container Container, _ time.Duration) (State, *Process, error) {
	return State{}, nil, fmt.Errorf("container %q: run a workload on %s: %w", container.Name, runtime.GOOS,
		errors.ErrUnsupported)
}

// PID needs Linux.
func (p *Process) PID() int { return 0 }

// Signal needs Linux.
func (p *Process) Signal(syscall.Signal) error { return errors.ErrUnsupported }

// Wait needs Linux.
func (p *Process) Wait() bool { return true }

// Close needs Linux.
func (p *Process) Close() error { return nil }
