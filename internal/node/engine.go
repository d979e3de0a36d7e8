// Package node is the node side of CSI, the same for every backend: it takes
// the block device that a backend.Node presents, identifies its content, makes
// a filesystem only on a device that is blank, checks, mounts, grows and binds
// it, and takes everything away again. The driver calls it; it knows neither
// gRPC nor Kubernetes beyond the keys of inline volumes.
//
// It keeps no state. Staged and published volumes are found in the kernel's mounts by
// device number; formatted ones by the content of the device and by the mark that the
// backend keeps. A mount is made detached, verified, grown, and only then put in its
// path; so a crash leaves either nothing or the finished thing.
package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// Options configure an Engine.
type Options struct {
	Backend backend.Node
	// KubeletDir may have symlinks in its own path; nothing below it may.
	KubeletDir string
	// Forbidden directories, such as the pool of the backend, may not contain a path of
	// a request.
	Forbidden []string
	// Runner runs mkfs and fsck; nil means real processes.
	Runner command.Runner
	// Logger may be nil.
	Logger *slog.Logger
	// Failpoints are named node/OPERATION/STEP; nil in production.
	Failpoints *failpoint.Set
	// Traits of the backend: which filesystems, the default first; whether block.
	Traits backend.Traits
}

// Engine serves the node calls. It is safe for concurrent use.
type Engine struct {
	backend    backend.Node
	runner     command.Runner
	log        *slog.Logger
	points     *failpoint.Set
	paths      *mount.Resolver
	filesystem []string
	block      bool
	calls      *concurrency.Runner
	// labels reports whether the kernel has SELinux, and mounts reads its mount table.
	labels func() bool
	mounts func() ([]*mountinfo.Info, error)
}

// The keys of an engine's locks: one for a volume and one for a target path. Two
// calls of Unpublish for one volume may run at once, as the kubelet's do.

// VolumeKey is the key of a volume.
func VolumeKey(id string) string { return "volume " + id }

// TargetKey is the key of a target path.
func TargetKey(path string) string { return "target " + path }

// New makes an Engine. Call Recover before the first request.
func New(o Options) (*Engine, error) {
	if o.Backend == nil {
		return nil, fmt.Errorf("node engine: %w: no backend", backend.ErrInvalid)
	}
	paths, err := mount.NewResolver(o.KubeletDir, o.Forbidden)
	if err != nil {
		return nil, fmt.Errorf("node engine: %w", err)
	}
	e := &Engine{backend: o.Backend, runner: o.Runner, log: o.Logger, points: o.Failpoints,
		paths: paths, filesystem: o.Traits.Filesystems, block: o.Traits.Block,
		labels: mount.LabelsFiles, mounts: mount.Table}
	if e.runner == nil {
		e.runner = command.NewSystem()
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.calls = concurrency.NewRunner(e.log)
	if len(e.filesystem) == 0 {
		e.filesystem = fs.Supported()
	}
	for _, name := range e.filesystem {
		if !slices.Contains(fs.Supported(), name) {
			return nil, fmt.Errorf("node engine: %w: filesystem %q of the backend; known are %s",
				backend.ErrInvalid, name, strings.Join(fs.Supported(), ", "))
		}
	}
	return e, nil
}

// Wait returns when no operation runs any more, or with the context's error.
// An operation whose caller left may still be inside a system call.
func (e *Engine) Wait(ctx context.Context) error { return e.calls.Wait(ctx) }

// supportedType checks the filesystem of a request; "" leaves the choice to us.
func (e *Engine) supportedType(name string) error {
	if name == "" || slices.Contains(e.filesystem, name) {
		return nil
	}
	return fmt.Errorf("%w: filesystem type %q; known are %s", backend.ErrInvalid, name, strings.Join(e.filesystem, ", "))
}

// readOnlyMode reports whether an access mode excludes writing.
func readOnlyMode(mode backend.AccessMode) bool {
	return mode == backend.SingleNodeReaderOnly || mode == backend.MultiNodeReaderOnly
}

// checkCapability refuses capabilities that no device has, and sorts the mount flags.
func (e *Engine) checkCapability(c backend.Capability, readOnly bool) (mount.Flags, error) {
	if c.Block {
		if !e.block {
			return mount.Flags{}, fmt.Errorf("%w: this backend has no raw block volumes", backend.ErrInvalid)
		}
		if c.FSType != "" || len(c.MountFlags) > 0 {
			return mount.Flags{}, fmt.Errorf("%w: a raw block volume has neither filesystem type nor mount flags",
				backend.ErrInvalid)
		}
		return mount.Flags{}, nil
	}
	if c.MountGroup != "" {
		return mount.Flags{}, fmt.Errorf("%w: the mount group is not applied by this driver (it does not announce "+
			"VOLUME_MOUNT_GROUP); the orchestrator sets ownership", backend.ErrInvalid)
	}
	if err := e.supportedType(c.FSType); err != nil {
		return mount.Flags{}, err
	}
	flags, err := mount.ParseFlags(c.MountFlags)
	if err != nil {
		return mount.Flags{}, err
	}
	if (readOnly || readOnlyMode(c.Mode)) && !flags.ReadOnly() {
		flags.Attributes = append(flags.Attributes, "ro")
	}
	return flags, nil
}
