// Package volumes creates volumes for claims and mounts them for pods. It does the work of the
// external-provisioner, the attach/detach controller and the kubelet's volume
// manager of a cluster. Each step of each volume is recorded
// durably before the driver is called and after it answered, with the ID of the
// boot. Adopt takes over the volumes that an earlier process left in use.
//
// It speaks to drivers through package csi/client only, and takes the rules from package
// claim.
package volumes

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// Drivers finds the instance of a driver that serves calls now.
type Drivers interface {
	Driver(name string) (*plugins.Driver, error)
}

// Options of a Manager. Store, Drivers and Paths are required.
type Options struct {
	Store   *store.Store
	Drivers Drivers
	Paths   claim.Paths
	// Mounts are those of the machine; the running kernel's if nil.
	Mounts Mounts
	// BootID is of the running boot.
	BootID string
	// Observe is called for each step, from several goroutines at once; it must
	// not block.
	Observe    func(Event)
	Logger     *slog.Logger
	Failpoints *failpoint.Set
	// NodeName is this machine's name in CSINode and VolumeAttachment
	// objects, and in the label kubernetes.io/hostname; the machine's own name if
	// empty.
	NodeName string
	// Record is called for each event of an object. It must not block.
	Record func(journal.Notice)
	Tracer *tracing.Tracer // nil for no traces
}

// ErrWaiting means that nothing failed, and that the call must wait until
// another object changes. The text names it.
var ErrWaiting = errors.New("waiting")

// Manager works on the volumes of one host. It is safe for concurrent use: one
// volume is worked on by one call at a time, different volumes in parallel.
type Manager struct {
	*shared
	// writer identifies the controller's call that writes, nil for other calls.
	writer *store.Writer
}

// shared is the state that all calls share.
type shared struct {
	options Options
	logger  *slog.Logger
	node    nodeSide

	locks concurrency.Queue

	index      index
	waits      waits
	partitions partitions
	said       memories[string]
	// reasons are the errors of the last calls for objects, also ErrWaiting.
	reasons memories[error]
	polls   memories[poll]

	expansions, modifications histories
	// due has the claims that ask for what a controller does, by controller/key.
	due memories[bool]

	// changed is the change that objectOf decoded last.
	changed       store.Change
	changedObject store.Object

	inspections concurrency.Calls[struct{}] // of filesystems, by path
	// listings are the questions what drivers are doing, by name.
	listings concurrency.Calls[[]progress.Operation]
	// mounting are the traces of pods whose volumes are not mounted yet.
	mounting memories[mountTrace]
	askEvery time.Duration
	figures  figures
}

// New makes a Manager.
func New(options Options) *Manager {
	if options.Observe == nil {
		options.Observe = func(Event) {}
	}
	if options.Record == nil {
		options.Record = func(journal.Notice) {}
	}
	if options.Mounts == nil {
		options.Mounts = KernelMounts{}
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Manager{shared: &shared{
		options: options, logger: options.Logger, index: index{store: options.Store}, askEvery: askEvery,
	}}
}

// as returns the Manager that writes as the context's writer: a controller's own
// writes are distinguished from the changes of other calls.
func (m *Manager) as(ctx context.Context) *Manager {
	return &Manager{shared: m.shared, writer: store.WriterOf(ctx)}
}

// lock waits until a key is free. Without it, a driver would answer ABORTED, and the host
// would have to repeat the call.
func (m *Manager) lock(ctx context.Context, key string) (unlock func(), err error) {
	return m.locks.Lock(ctx, key)
}
