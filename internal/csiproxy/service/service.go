// Package service makes a program a Windows service: its entry in the service
// control manager, the verbs of that, the life of a process that the manager
// started, and the event log. Only Windows has any of it; elsewhere every
// function answers errors.ErrUnsupported.
package service

import "time"

// Name is the service's by default. It differs from upstream's, csiproxy, so that
// an old proxy can stay installed next to this one for versions that were dropped.
const Name = "holdfast-csi-proxy"

// Config is a service's entry.
type Config struct {
	Name, DisplayName, Description string
	// Program is the path of the executable; Arguments are what the manager
	// starts it with.
	Program   string
	Arguments []string
	// Restart is how long after its unexpected end the service is started again.
	Restart time.Duration
	// StopTime is how long the service may take to stop when the machine is shut
	// down.
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
	Other        State = "paused, or about to be or not to be"
)

// Status is what the manager reports of a service.
type Status struct {
	State     State
	ProcessID uint32 // 0 unless it runs
	Start     string // such as automatic
	Command   string // what it is started with
	// ExitCode is the last end's; 0 is a good one.
	ExitCode uint32
}

// Notes are what could not be done or seen, and is not needed to run.
type Notes []string
