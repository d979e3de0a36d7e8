package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/holdfast-csi/holdfast/internal/durable"
)

// The phases of a container's state. "" is one that never ran.
const (
	// Starting: written by the host. While no process has the lock, the command was
	// not executed.
	Starting ShimPhase = "starting"
	// Running: written by the shim before it executes the command.
	Running ShimPhase = "running"
	// Exited: written by the shim, or by the host that finds it gone.
	Exited ShimPhase = "exited"
)

// ShimPhase is the phase of a container.
type ShimPhase string

// StateVersion is that of the state file. A host reads those of older ones: the
// containers that they started continue over an upgrade.
const StateVersion = 1

// The reasons of an end, in the words of Kubernetes' container runtimes.
const (
	ReasonCompleted  = "Completed"
	ReasonError      = "Error"
	ReasonStartError = "StartError"
	// ReasonUnknown: the shim ended without a record.
	ReasonUnknown = "Unknown"
)

// startErrorCode is the exit code of a command that could not be started, as
// container runtimes have it.
const startErrorCode = 128

// LostCode is the exit code of a container that was killed, or whose end was not observed.
const LostCode = 137

// Ended is how an attempt to run a container ended.
type Ended struct {
	Attempt           int
	Started, Finished time.Time
	ExitCode          int
	Signal            int `json:",omitempty"`
	Reason            string
	Message           string `json:",omitempty"`
}

// State is the recorded state of a container.
type State struct {
	Version int
	Phase   ShimPhase
	// Attempt counts the earlier starts.
	Attempt int
	// BootID is of the boot in which the attempt was started.
	BootID string
	// PID and Birth (its start time in clock ticks since the boot, proc_pid_stat(5))
	// name the shim.
	PID     int    `json:",omitempty"`
	Birth   uint64 `json:",omitempty"`
	Started time.Time
	// Ended is the end of this attempt, nil before.
	Ended *Ended `json:",omitempty"`
	// Previous is how the attempt before ended.
	Previous *Ended `json:",omitempty"`
	// Pause is how long the next attempt waits after a failure of this one.
	Pause time.Duration `json:",omitempty"`
}

// The files of a container's state directory.
const (
	StateFile = "state.json"
	LockFile  = "lock"
	// WordsFile has the output of the shim itself, which is normally empty.
	WordsFile = "shim.log"
)

// The descriptors that the child inherits besides the standard ones.
const (
	SpecDescriptor   = 3 // the Order as JSON; of Run, its end means that the parent is gone
	StatusDescriptor = 4 // closed when the command was executed; of Run, the reason why it could not be
	LockDescriptor   = 5 // of a shim: its lock, which it has from its birth on
	EnterDescriptor  = 5 // of a process that enters a container: a pidfd of the container's init
	RootDescriptor   = 5 // of a copy: the container's root directory
)

// ShimOrder is a shim's part of an Order.
type ShimOrder struct {
	State, Logs string
	LogLimit    int64
}

// EnterOrder is for a command in a container that runs.
type EnterOrder struct {
	// Terminal: standard input is a terminal that becomes the command's controlling one.
	Terminal bool
}

// CopyOrder is for a copy between a container that runs and a tar stream: standard output,
// or, with Upload, standard input.
type CopyOrder struct {
	// Path is in the container; a relative one begins at the container's directory.
	Path   string
	Upload bool
	// Name is the first part of all names in the stream; "." if they have none in common.
	Name string
	// NoPreserve: new files get the default permissions and the time of the copy.
	NoPreserve bool
}

// Order is the child's input: from Shim.Start with Shim, from Shim.Exec with Enter, from
// Shim.Copy with Copy, and from Run without any.
type Order struct {
	Container
	Shim  *ShimOrder  `json:",omitempty"`
	Enter *EnterOrder `json:",omitempty"`
	Copy  *CopyOrder  `json:",omitempty"`
}

// ReadState returns the zero State if there is none. One that cannot be read
// is an error: who does not know must not start anything.
func ReadState(root *os.Root) (State, error) {
	data, err := root.ReadFile(StateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("read the container's state: %w", err)
	}
	var state State
	if err := json.Unmarshal(data, &state); err != nil {
		return State{}, fmt.Errorf("the container's state %s/%s is damaged: %w", root.Name(), StateFile, err)
	}
	if state.Version > StateVersion {
		return State{}, fmt.Errorf("the container's state %s/%s has version %d; this program knows %d: use the newer holdfast that wrote it",
			root.Name(), StateFile, state.Version, StateVersion)
	}
	return state, nil
}

// WriteState makes the state durable.
func WriteState(root *os.Root, state State) error {
	state.Version = StateVersion
	data, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("write the container's state: %w", err)
	}
	if err := durable.WriteFile(root, StateFile, data, 0o600); err != nil {
		return fmt.Errorf("write the container's state: %w", err)
	}
	return nil
}

// End is the state after the attempt's end.
func (s State) End(ended Ended) State {
	ended.Attempt, ended.Started = s.Attempt, s.Started
	if ended.Started.IsZero() {
		ended.Started = ended.Finished
	}
	s.Phase, s.Ended = Exited, &ended
	return s
}

// Next is the state of the attempt after an ended one, or of one that never
// came to its command.
func (s State) Next(bootID string) State {
	if s.Phase == Exited {
		return State{Attempt: s.Attempt + 1, Previous: s.Ended, BootID: bootID, Phase: Starting}
	}
	return State{Attempt: s.Attempt, Previous: s.Previous, BootID: bootID, Phase: Starting}
}
