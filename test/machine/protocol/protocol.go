// Package protocol has the messages between a machine's agent and the laboratory,
// one JSON value after another in each direction of a serial port.
package protocol

// Request asks the agent to run a program.
type Request struct {
	ID      uint64   `json:"id"`
	Command []string `json:"command"`
	Stdin   []byte   `json:"stdin,omitempty"`
}

// Message is what the agent sends. One of its fields is set.
type Message struct {
	// Hello is the machine's boot ID, sent once when the agent starts.
	Hello string `json:"hello,omitempty"`
	// Report is a datagram that a program of the machine sent to Socket.
	Report string `json:"report,omitempty"`
	// Response answers a Request.
	Response *Response `json:"response,omitempty"`
}

// Response says how a program ended.
type Response struct {
	ID uint64 `json:"id"`
	// Code is the exit code; -1 if the program did not start or a signal ended it,
	// and Stderr then says why.
	Code   int    `json:"code"`
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
}

const (
	// Port is the name of the serial port on the machine.
	Port = "/dev/virtio-ports/agent"
	// Socket takes the reports of the machine's programs, a datagram each. A send
	// returns when the agent has a place for it, not when the laboratory has it.
	Socket = "/run/machine/reports"
)
