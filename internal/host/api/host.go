package api

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// ErrReleasing is the error of a Release that has begun and continues without
// its caller.
var ErrReleasing = errors.New("it is still being released, and the host retries until it is")

// Host is the part of the host that the server calls. The server reads objects from the
// store.
type Host interface {
	Apply(ctx context.Context, files []manifest.File, options ApplyOptions) (ApplyResult, error)
	DeleteObject(ctx context.Context, kind store.Kind, key string, options DeleteOptions) (Deleted, error)
	// Hold mounts volumes for a caller that is not a pod, and Release takes them
	// away; a Hold of the same namespace and name gives the same answer again. The
	// error is ErrReleasing if the context ends before everything is unmounted.
	Hold(ctx context.Context, request HoldRequest) (HoldAnswer, error)
	Release(ctx context.Context, request ReleaseRequest) error
	// Drain ends the processes of all pods and unmounts all volumes, for a machine
	// that shuts down.
	Drain(ctx context.Context) error
	// Logs writes a container's output, and with Follow until it ends.
	Logs(ctx context.Context, request LogRequest, out io.Writer) error
	// Exec runs a command in a container that runs, and returns its exit code. When the
	// context ends, it ends the command.
	Exec(ctx context.Context, request ExecRequest, streams ExecStreams) (int, error)
	// Copy packs what is at a path of a container that runs into a tar stream for Stdout,
	// or unpacks the one of Stdin. When the context ends, it removes what is unfinished.
	Copy(ctx context.Context, request CopyRequest, streams ExecStreams) error
	Stats(ctx context.Context, claimKey string) (VolumeStats, error)
	// Mounts says of each mounted volume of a pod whether it answers.
	Mounts(ctx context.Context, podKey string) ([]Mount, error)
	// Progress has the steps of which the driver says how far they are.
	Progress() []journal.StepEntry
	// Activity has the counters of the mounted volumes.
	Activity() (Activity, error)
	Drivers() []Driver
	// State returns the progress of the work for an object, one for each controller
	// that has any.
	State(kind store.Kind, key string) []WorkState
}

// LogRequest names a container and which part of its output to return.
type LogRequest struct {
	Namespace string
	Pod       string
	// Container may be empty if the pod has one.
	Container string
	Follow    bool
	// Previous asks for the run before the last restart.
	Previous bool
	// Tail is the number of last lines to return; negative: all.
	Tail int64
	// Since leaves out what was written before this time.
	Since time.Time
	// Timestamps puts the time at which it was written before each line.
	Timestamps bool
}

// HoldRequest asks for volumes to be mounted until they are released.
type HoldRequest struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Holder    string       `json:"holder"` // description of the user, for messages
	Volumes   []HoldVolume `json:"volumes"`
	// FSGroup is as in a pod's security context.
	FSGroup *int64 `json:"fsGroup,omitempty"`
	// Pod, if given, is the pod whose volumes to mount and that the caller runs
	// itself; it replaces Volumes and FSGroup. Namespace and Name are
	// its, and its containers need no command.
	Pod *corev1.Pod `json:"podObject,omitempty"`
	// Once: the hold fails with the first error that repeating alone does not help
	// against. Otherwise the host retries until the caller leaves.
	Once bool `json:"once,omitempty"`
	// UntilReboot: the hold is for something that no reboot outlives. Otherwise
	// it is brought back after one.
	UntilReboot bool `json:"untilReboot,omitempty"`
	// TimeoutSeconds bounds the wait for the volumes; 0: as long as the caller
	// waits. After it the hold is released.
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
	// Lease: the hold ends with the connection that asked for it. The server
	// sets it, and PID, the process that asked.
	Lease bool  `json:"-"`
	PID   int32 `json:"-"`
}

// HoldVolume is one volume of a hold: of a claim, or inline as in a pod.
type HoldVolume struct {
	Name     string                  `json:"name"`
	Claim    string                  `json:"claim,omitempty"`
	CSI      *corev1.CSIVolumeSource `json:"csi,omitempty"`
	ReadOnly bool                    `json:"readOnly,omitempty"`
	// Bind is an empty directory of the machine where the volume is bind mounted, too.
	Bind string `json:"bind,omitempty"`
}

// HoldAnswer says where the volumes are.
type HoldAnswer struct {
	// Pod is the object of the hold, namespace/name, and UID its uid.
	Pod     string               `json:"pod"`
	UID     string               `json:"uid"`
	Volumes map[string]HoldMount `json:"volumes"` // by HoldVolume.Name
	// Directory is for other files of the caller; it is removed with the hold.
	Directory string `json:"directory"`
	// Warnings are the policy's, for the user who made the hold.
	Warnings []string `json:"warnings,omitempty"`
}

// ReleaseRequest names a hold that is to end.
type ReleaseRequest struct {
	Namespace, Name string
	// UID, if given, is the one that the hold must have.
	UID string
}

// HoldMount is one volume that is mounted, or the device of a block volume.
type HoldMount struct {
	Path     string `json:"path"`
	Block    bool   `json:"block,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Mount is a volume that is mounted for a pod. Error is empty if it answers.
type Mount struct {
	Volume string `json:"volume"`
	Driver string `json:"driver"`
	Path   string `json:"path"`
	Error  string `json:"error,omitempty"`
}

// VolumeStats has the driver's figures of a volume in use.
type VolumeStats struct {
	Claim  string `json:"claim"`
	Volume string `json:"volume"`
	Driver string `json:"driver"`
	Path   string `json:"path"`
	// Bytes and Inodes are nil if the driver does not report them.
	Bytes  *Usage `json:"bytes,omitempty"`
	Inodes *Usage `json:"inodes,omitempty"`
	// Abnormal is the fault that the driver reports of the volume, if any.
	Abnormal string `json:"abnormal,omitempty"`
}

// Usage is how much there is of something.
type Usage struct {
	Total     int64 `json:"total"`
	Used      int64 `json:"used"`
	Available int64 `json:"available"`
}

// Driver is a driver that the host knows, registered or not. Of one that did not
// say who it is, and of a unit's file that is refused, the name is empty.
type Driver struct {
	Name      string           `json:"name"`
	Instances []DriverInstance `json:"instances"`
	// Unit is the file that the host starts the driver from, nil if another program
	// starts it. A unit whose name is not its driver's is listed by itself.
	Unit *DriverUnit `json:"unit,omitempty"`
}

// IsRegistered reports whether an instance gets the calls. It may not answer them.
func (d Driver) IsRegistered() bool {
	return slices.ContainsFunc(d.Instances, func(i DriverInstance) bool { return i.Serving })
}

// DriverUnit is where the host is with a driver that it starts.
type DriverUnit struct {
	File string `json:"file,omitempty"`
	// State is Running, Waiting for the next start, Stopping, or Refused.
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	PID      int       `json:"pid,omitempty"`
	Restarts int       `json:"restarts,omitempty"`
	Error    string    `json:"error,omitempty"`
	// Log has the last lines that the driver wrote; clients that may only read do not
	// get it.
	Log []string `json:"log,omitempty"`
}

// DriverInstance is one process of a driver.
type DriverInstance struct {
	// Socket is the registration socket, Endpoint the one for calls.
	Socket   string `json:"socket"`
	Endpoint string `json:"endpoint,omitempty"`
	// State is such as registered, registering or failed; Serving is the one
	// that gets the calls.
	State   string `json:"state"`
	Serving bool   `json:"serving,omitempty"`
	// Unready says that it fails Probe or does not answer; Error has why.
	Unready bool      `json:"unready,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Error   string    `json:"error,omitempty"`
	// Version is the driver's own (GetPluginInfo).
	Version      string            `json:"version,omitempty"`
	NodeID       string            `json:"nodeID,omitempty"`
	Topology     map[string]string `json:"topology,omitempty"`
	MaxVolumes   int64             `json:"maxVolumes,omitempty"` // 0: no limit
	Capabilities []string          `json:"capabilities,omitempty"`
	// Warnings are faults of a driver that do not prevent its registration.
	Warnings []string `json:"warnings,omitempty"`
	// Attempts are the registrations that failed in a row; the next is at Next.
	Attempts int       `json:"attempts,omitempty"`
	Next     time.Time `json:"next,omitzero"`
}

// WorkState is the progress of a controller's work for an object.
type WorkState struct {
	Controller string `json:"controller"`
	Running    bool   `json:"running,omitempty"`
	// Since is when the running call began.
	Since time.Time `json:"since,omitzero"`
	// Attempts are the failures in a row, LastError the last one's text.
	Attempts  int    `json:"attempts,omitempty"`
	LastError string `json:"lastError,omitempty"`
	// Next is when it is tried again; without one, when something changes.
	Next time.Time `json:"next,omitzero"`
}
