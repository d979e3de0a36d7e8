package workload

import (
	"errors"
	"time"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/host/workload/inside"
)

// A shim runs one container and outlives the host. It is init of the
// container's own process namespace, so that whatever way it ends, everything
// that the container ever started ends with it (pid_namespaces(7)); a cgroup
// would add nothing to that. It writes the output into log files and the
// container's end into a state file.
//
// A lock (flock(2)) on a file next to the state is held for as long as the shim
// lives. The host takes it, writes that an attempt starts, and hands the locked
// descriptor to the shim: at no instant could a second one be started, and
// a process that gets the lock knows that nothing runs.

// The words of package inside.
type (
	// State is what is known of a container.
	State = inside.State
	// Ended is how an attempt to run a container ended.
	Ended = inside.Ended
	// ShimPhase is where a container stands.
	ShimPhase = inside.ShimPhase
)

// The phases of a container's state. "" is one that never ran.
const (
	Starting = inside.Starting
	Running  = inside.Running
	Exited   = inside.Exited
)

// The reasons of an end.
const (
	ReasonCompleted  = inside.ReasonCompleted
	ReasonError      = inside.ReasonError
	ReasonStartError = inside.ReasonStartError
	ReasonUnknown    = inside.ReasonUnknown
)

// Place is where a container's shim keeps what outlives the host.
type Place struct {
	// State and Logs are directories of this container alone.
	State, Logs string
	BootID      string
	// LogLimit is how many bytes a log file has before it is put aside, by
	// DefaultLogLimit if 0. One that was put aside is kept.
	LogLimit int64
	// StartLimit bounds how long a shim may take to execute the command, by
	// DefaultStartLimit if 0.
	StartLimit time.Duration
	// Failpoints stop the host between the steps of Start.
	Failpoints *failpoint.Set
}

// DefaultLogLimit is the kubelet's containerLogMaxSize.
const DefaultLogLimit = 10 << 20

// DefaultStartLimit is the kubelet's limit for a call of its container runtime
// (runtimeRequestTimeout).
const DefaultStartLimit = 2 * time.Minute

// ErrBusy tells that a shim is about to begin or to end: look again in an
// instant.
var ErrBusy = errors.New("a container's shim is about to begin or to end")

// BusyPause is how long such an instant is.
const BusyPause = 20 * time.Millisecond
