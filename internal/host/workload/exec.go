package workload

import (
	"errors"
	"io"
	"syscall"
)

// ErrNotRunning means that a container does not run.
var ErrNotRunning = errors.New("the container does not run")

// Size is a terminal's, in characters.
type Size struct {
	Columns uint16 `json:"columns"`
	Rows    uint16 `json:"rows"`
}

// Session is the caller's side of a command in a container that runs.
type Session struct {
	// Stdin is read until its end; nil for no input.
	Stdin io.Reader
	// Stdout and Stderr get the output; with a terminal, Stdout gets all of it.
	Stdout, Stderr io.Writer
	// Terminal makes a terminal of the container for the command.
	Terminal bool
	// Signals are passed on to the command, and what it started in its group.
	Signals <-chan syscall.Signal
	// Sizes are those that the terminal gets.
	Sizes <-chan Size
}
