package server

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// ErrTaken means that another process serves the pipe.
var ErrTaken = errors.New("another process serves it")

// Transport probes pipes, makes them, and reports the process at their other end.
// NewTransport returns that of Windows; package proxytest has one for tests.
type Transport interface {
	// Probe returns the process that serves the pipe now, or nil. It connects and
	// disconnects.
	Probe(ctx context.Context, pipe string) (*Process, error)
	// Listen makes the pipe, which no process may have: ErrTaken if another process
	// made it first. The pipe rejects clients that the security descriptor does not name.
	Listen(ctx context.Context, pipe, sddl string) (net.Listener, error)
	// Client returns the process at the other end of an accepted connection, as far
	// as the system reports it.
	Client(connection net.Conn) Process
}

// Process is the process at one end of a pipe. Fields that the system does not report are
// zero.
type Process struct {
	ID      uint32
	Program string // path of the executable
	User    string // DOMAIN\name, or the SID
}

func (p Process) String() string {
	text := fmt.Sprintf("process %d", p.ID)
	if p.ID == 0 {
		text = "an unknown process"
	}
	if p.Program != "" {
		text += ", " + p.Program
	}
	if p.User != "" {
		text += ", as " + p.User
	}
	return text
}
