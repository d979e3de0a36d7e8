package workload

import (
	"errors"
	"time"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/host/workload/inside"
)

// A shim runs one container and outlives the host. It is init of the
// container's own process namespace, so that each process of the container ends with it
// (pid_namespaces(7)); a cgroup is not needed for that. It writes the output into log
// files and the container's end into a state file.
//
// The shim keeps a lock (flock(2)) on a file next to the state as long as it lives.
// The host acquires it, records that an attempt starts, and passes the locked
// descriptor to the shim: no second shim can be started at any moment, and a process
// that gets the lock knows that nothing runs.

// The words of package inside.
type (
	// State is the recorded state of a container.
	State = inside.State
	// Ended is how an attempt to run a container ended.
	Ended = inside.Ended
	// ShimPhase is the phase of a container.
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

// Shim starts and finds the shim of one container. Its directories outlive the host.
type Shim struct {
	// State and Logs are directories of this container alone.
	State, Logs string
	BootID      string
	// LogLimit is the size in bytes at which a log file is rotated, DefaultLogLimit
	// if 0. One rotated file is kept.
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

// ErrBusy means that a shim is about to begin or to end: the caller retries after
// BusyPause.
var ErrBusy = errors.New("a container's shim is about to begin or to end")

// BusyPause is the delay of a retry after ErrBusy.
const BusyPause = 20 * time.Millisecond
