package workload

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
)

// A shim runs one container and outlives the host. It is init of the
// container's own process namespace, so that whatever way it ends, everything
// that the container ever started ends with it (pid_namespaces(7)); a cgroup
// would add nothing to that. It writes the output into log files and the
// container's end into a state file.
//
// A lock (flock(2)) on a file beside the state is held for as long as the shim
// lives. The host takes it, writes that an attempt starts, and hands the locked
// descriptor to the shim: at no instant could a second one be started, and
// whoever gets the lock knows that nothing runs.

// The phases of a container's state. "" is one that never ran.
const (
	// Starting: written by the host. While nobody has the lock, the command was
	// not executed.
	Starting ShimPhase = "starting"
	// Running: written by the shim before it executes the command.
	Running ShimPhase = "running"
	// Exited: written by the shim, or by who finds it gone.
	Exited ShimPhase = "exited"
)

// ShimPhase is where a container stands.
type ShimPhase string

// StateVersion is that of the state file. A host reads those of older ones: the
// containers that they started go on over an upgrade.
const StateVersion = 1

// The reasons of an end, in the words of Kubernetes' container runtimes.
const (
	ReasonCompleted  = "Completed"
	ReasonError      = "Error"
	ReasonStartError = "StartError"
	// ReasonUnknown: the shim went without a word.
	ReasonUnknown = "Unknown"
)

// startErrorCode is the exit code of a command that could not be started, as
// container runtimes have it.
const startErrorCode = 128

// lostCode is the exit code of what was killed, or ended unseen.
const lostCode = 137

// Ended is how an attempt to run a container ended.
type Ended struct {
	Attempt           int
	Started, Finished time.Time
	ExitCode          int
	Signal            int `json:",omitempty"`
	Reason            string
	Message           string `json:",omitempty"`
}

// State is what is known of a container.
type State struct {
	Version int
	Phase   ShimPhase
	// Attempt counts from 0: how often it was started before.
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

// Place is where a container's shim keeps what outlives the host.
type Place struct {
	// State and Logs are directories of this container alone.
	State, Logs string
	BootID      string
	// LogLimit is how many bytes a log file has before it is put aside, by
	// DefaultLogLimit if 0. One that was put aside is kept.
	LogLimit int64
	// Failpoints stop the host between the steps of Start.
	Failpoints *failpoint.Set
}

// DefaultLogLimit is the kubelet's containerLogMaxSize.
const DefaultLogLimit = 10 << 20

// ErrBusy tells that a shim is about to begin or to end: look again in an
// instant.
var ErrBusy = errors.New("a container's shim is about to begin or to end")

// BusyPause is how long such an instant is.
const BusyPause = 20 * time.Millisecond

const (
	stateFile = "state.json"
	lockFile  = "lock"
	// shimLogFile has what a shim itself had to say, which is nothing.
	shimLogFile = "shim.log"
)

func (p Place) path(name string) string { return filepath.Join(p.State, name) }

// shimOrder is what a shim is told beside the container.
type shimOrder struct {
	State, Logs string
	LogLimit    int64
}

// order is what the child reads: from Run without, from a Place with a shim's part.
type order struct {
	Container
	Shim *shimOrder `json:",omitempty"`
}
