package pods

import (
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// Container starts and finds the processes of one container, which outlive the host.
type Container interface {
	// Inspect returns the container's state, and its process if that runs; nil if not. A
	// process that ended without a record of its end gets one with the reason.
	Inspect(reason string) (workload.State, Process, error)
	// Start starts the next attempt. The error is workload.ErrBusy if a process runs.
	Start(container workload.Container, pause time.Duration) (workload.State, Process, error)
}

// Process is a container's process that runs.
type Process interface {
	// Wait returns true when the process has ended, false after Close.
	Wait() bool
	Signal(signal syscall.Signal) error
	Close() error
}

// shimContainer is a container of package workload.
type shimContainer struct{ shim workload.Shim }

func (c shimContainer) Inspect(reason string) (workload.State, Process, error) {
	return withProcess(c.shim.Inspect(reason))
}

func (c shimContainer) Start(container workload.Container, pause time.Duration) (workload.State, Process, error) {
	return withProcess(c.shim.Start(container, pause))
}

func withProcess(state workload.State, process *workload.Process, err error) (workload.State, Process, error) {
	if process == nil {
		return state, nil, err
	}
	return state, process, err
}

func (m *Manager) processesOf(uid types.UID, name string) Container {
	if m.options.Containers != nil {
		return m.options.Containers(uid, name)
	}
	return shimContainer{m.shim(uid, name)}
}
