// Package windows is the node side of CSI on Windows, the same for every backend that
// attaches disks. It finds the disk of a volume, makes a partition and a filesystem only
// on a blank disk, mounts it as a folder, links the target paths of workloads to it, and
// undoes these steps. It serves the same calls as package node on Linux.
//
// All its calls to the machine go through an api.Host: csi-proxy behind a pipe, or the
// same code in this process. It reads the state of a volume from the machine before and
// after each step. The intent of Stage, which the machine does not show, is a directory
// (see intents). So the repeated call completes an operation after a crash between any
// two steps.
package windows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
)

// Backend is the half of a backend that knows its volumes among the disks of a
// Windows machine.
type Backend interface {
	// NodeInfo returns the ID and the topology of this machine.
	NodeInfo(ctx context.Context) (backend.NodeInfo, error)
	// CheckID returns ErrNotFound for a text that cannot be the ID of a volume.
	CheckID(volumeID string) error
	// IsVolume reports whether a disk is the volume's, by the disk's identity and never by
	// its number. publishContext is that of the attachment, or nil if it is unknown.
	IsVolume(volumeID string, publishContext map[string]string, disk api.Disk) bool
}

// Options configure an Engine.
type Options struct {
	Host    api.Host
	Backend Backend
	// KubeletDir is the directory above all paths of requests, such as
	// C:\var\lib\kubelet.
	KubeletDir string
	// Driver is the name of the CSI driver; KubeletDir\plugins\DRIVER has the
	// intents of its volumes.
	Driver string
	// Logger may be nil.
	Logger *slog.Logger
	// Failpoints are named winnode/OPERATION/STEP; nil in production.
	Failpoints *failpoint.Set
	// Wait bounds the time in which a disk must appear, or show its growth; 0 means 30 s.
	// PollInterval is the time between two polls; 0 means 500 ms.
	Wait, PollInterval time.Duration
}

const (
	defaultWait         = 30 * time.Second
	defaultPollInterval = 500 * time.Millisecond
)

// Engine serves the node calls. It is safe for concurrent use.
type Engine struct {
	host           api.Host
	backend        Backend
	log            *slog.Logger
	points         *failpoint.Set
	rules          *paths.Rules
	kubelet        string
	calls          *concurrency.Runner
	intents        intents
	targets        publishedPaths // where volumes are published
	wait, interval time.Duration
}

// New makes an Engine. It makes no call to the machine.
func New(o Options) (*Engine, error) {
	if o.Backend == nil || o.Host.Disks == nil || o.Host.Volumes == nil || o.Host.Filesystem == nil {
		return nil, fmt.Errorf("node engine: %w: it needs a backend and a host", backend.ErrInvalid)
	}
	rules, err := paths.New(o.KubeletDir)
	if err != nil {
		return nil, fmt.Errorf("node engine: %w", err)
	}
	plugins, err := rules.Target("driver", rules.Roots()[0].String()+`\plugins\`+o.Driver)
	if err != nil || o.Driver == "" || strings.Contains(o.Driver, `\`) {
		return nil, fmt.Errorf("node engine: %w: the driver's name %q names no directory", backend.ErrInvalid, o.Driver)
	}
	e := &Engine{
		host: o.Host, backend: o.Backend, log: o.Logger, points: o.Failpoints,
		rules: rules, kubelet: rules.Roots()[0].String(), wait: o.Wait, interval: o.PollInterval,
		intents: intents{filesystem: o.Host.Filesystem, dir: plugins.String() + `\stage-intents`},
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.wait <= 0 {
		e.wait = defaultWait
	}
	if e.interval <= 0 {
		e.interval = defaultPollInterval
	}
	e.calls = concurrency.NewRunner(e.log)
	return e, nil
}

// Wait returns when no operation runs any more, or with the context's error.
func (e *Engine) Wait(ctx context.Context) error { return e.calls.Wait(ctx) }

// Info returns the ID and topology of this machine.
func (e *Engine) Info(ctx context.Context) (backend.NodeInfo, error) {
	info, err := e.backend.NodeInfo(ctx)
	if err != nil {
		return info, fmt.Errorf("node info: %w", err)
	}
	return info, nil
}

// Probe returns nil if node calls can work now, and otherwise the reason, such as that
// csi-proxy does not run.
func (e *Engine) Probe(ctx context.Context) error {
	exists, err := e.host.Filesystem.PathExists(ctx, e.kubelet)
	if err != nil {
		return fmt.Errorf("the machine's storage cannot be reached: %w", err)
	}
	if !exists {
		return fmt.Errorf("%w: the kubelet's directory %s does not exist on this machine; set --kubelet-dir",
			backend.ErrPrecondition, e.kubelet)
	}
	if reachable, ok := e.backend.(backend.Reachable); ok {
		return reachable.Probe(ctx)
	}
	return nil
}

// StorageHealth returns the problems that the backend sees in the storage of this
// machine.
func (e *Engine) StorageHealth(ctx context.Context) ([]backend.HealthProblem, error) {
	if reporter, ok := e.backend.(backend.NodeHealthReporter); ok {
		return reporter.StorageHealth(ctx)
	}
	return nil, nil
}

func checkID(id string) error {
	if id == "" {
		return fmt.Errorf("%w: volume_id is missing", backend.ErrInvalid)
	}
	return nil
}

// path checks a path of a request and normalizes it: the kubelet may spell it with slashes
// or without its drive.
func (e *Engine) path(field, text string) (string, error) {
	if text == "" {
		return "", fmt.Errorf("%w: %s is missing", backend.ErrInvalid, field)
	}
	path, err := e.rules.Target(field, paths.Normalize(text))
	if err != nil {
		return "", err
	}
	return path.String(), nil
}

// absent returns nil for ErrNotFound, and other errors as they are.
func absent(err error) error {
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	return err
}
