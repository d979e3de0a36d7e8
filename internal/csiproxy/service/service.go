// Package service makes a program a Windows service: its entry in the service control
// manager, its start and stop, the process that the manager started, and the event log.
// On other systems every function returns errors.ErrUnsupported.
package service

import "time"

// Name is the default name of the service. It differs from upstream's, csiproxy, so that
// an old proxy can stay installed next to this one for versions that this one lacks.
const Name = "holdfast-csi-proxy"

// Config is a service's entry.
type Config struct {
	Name, DisplayName, Description string
	// Program is the path of the executable; Arguments are what the manager
	// starts it with.
	Program   string
	Arguments []string
	// Restart is the time from an unexpected end to the restart of the service.
	Restart time.Duration
	// StopTime bounds the stop of the service when the machine is shut down.
	StopTime time.Duration
}

// State is a service's state, as the manager names it.
type State string

// The states of a service, and the absence of one.
const (
	NotInstalled State = "not installed"
	StateStopped State = "stopped"
	Starting     State = "start pending"
	Stopping     State = "stop pending"
	Running      State = "running"
	Other        State = "paused, pausing or resuming"
)

// Status is the manager's entry and state of a service.
type Status struct {
	State     State
	ProcessID uint32 // 0 unless it runs
	Start     string // such as automatic
	Command   string // its command line
	// ExitCode is that of the last end; 0 means no error.
	ExitCode uint32
}

// Notes are the steps that failed, and that the service does not need.
type Notes []string
