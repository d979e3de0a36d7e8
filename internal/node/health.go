package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// Reasons of the problems that the engine finds by itself.
const (
	ReasonDeviceMissing      = "DeviceMissing"
	ReasonFilesystemErrors   = "FilesystemErrors"
	ReasonFilesystemReadOnly = "FilesystemReadOnly"
	ReasonFilesystemFailed   = "FilesystemFailed"
)

// Info says who this machine is.
func (e *Engine) Info(ctx context.Context) (backend.NodeInfo, error) {
	info, err := e.backend.NodeInfo(ctx)
	if err != nil {
		return info, fmt.Errorf("node info: %w", err)
	}
	return info, nil
}

// Probe reports whether node calls can work now; the error names the missing part.
func (e *Engine) Probe(ctx context.Context) error {
	if err := mount.Available(); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrPrecondition, err)
	}
	if reachable, ok := e.backend.(backend.Reachable); ok {
		return reachable.Probe(ctx)
	}
	return nil
}

// StorageHealth returns the faults that the backend finds in the storage of this machine.
func (e *Engine) StorageHealth(ctx context.Context) ([]backend.HealthProblem, error) {
	if reporter, ok := e.backend.(backend.NodeHealthReporter); ok {
		return reporter.StorageHealth(ctx)
	}
	return nil, nil
}

// VolumeHealth lists the faults of a volume on this machine, none for a healthy one.
// The paths may be empty, or paths where the volume was to be and is not: that is not a
// problem of the volume. ErrNotFound when neither the backend nor a path knows it.
func (e *Engine) VolumeHealth(
	ctx context.Context, volumeID, volumePath, stagingPath string,
) ([]backend.HealthProblem, error) {
	if err := checkID(volumeID); err != nil {
		return nil, err
	}
	paths := map[string]string{"volume_path": volumePath, "staging_target_path": stagingPath}
	for name, path := range paths {
		if path == "" {
			delete(paths, name)
		} else if err := e.paths.CheckPath(name, path); err != nil {
			return nil, err
		}
	}
	key := "health " + volumeID + " " + volumePath
	found, err := concurrency.RunResult(ctx, e.calls, "health of volume "+volumeID, []string{key},
		func(ctx context.Context) ([]backend.HealthProblem, error) { return e.examine(ctx, volumeID, paths) })
	if errors.Is(err, context.DeadlineExceeded) {
		return []backend.HealthProblem{{Kind: backend.HealthInaccessible, Reason: ReasonFilesystemFailed,
			Message: "the filesystem or its device does not answer"}}, nil
	}
	return found, err
}

func (e *Engine) examine(
	ctx context.Context, volumeID string, paths map[string]string,
) ([]backend.HealthProblem, error) {
	devices, err := e.devices(ctx, volumeID)
	if err != nil {
		return nil, err
	}
	var found problems
	known := len(devices) > 0
	if reporter, ok := e.backend.(backend.NodeHealthReporter); ok {
		reported, err := reporter.NodeVolumeHealth(ctx, volumeID)
		if err != nil && !errors.Is(err, backend.ErrNotFound) {
			return nil, err
		}
		known = known || err == nil
		found.add(reported...)
	}
	for name, path := range paths {
		mounted, err := e.examinePath(&found, name, path, devices)
		if err != nil {
			return nil, err
		}
		known = known || mounted
	}
	if !known {
		return nil, fmt.Errorf("%w: the volume is not on this machine", backend.ErrNotFound)
	}
	return found.list, nil
}

// problems are unique by kind and reason (CSI spec 1.13, VolumeHealthStatus).
type problems struct{ list []backend.HealthProblem }

func (p *problems) add(more ...backend.HealthProblem) {
	for _, problem := range more {
		known := false
		for _, one := range p.list {
			known = known || (one.Kind == problem.Kind && one.Reason == problem.Reason)
		}
		if !known {
			p.list = append(p.list, problem)
		}
	}
}

// examinePath inspects one mount of the volume and reports whether there is one.
func (e *Engine) examinePath(found *problems, name, path string, devices []backend.Device) (bool, error) {
	node, err := e.open(name, path)
	if errors.Is(err, backend.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer closeQuietly(node)
	if !node.MountRoot {
		return false, nil
	}
	if !owns(node, devices) {
		gone, err := mayUnmount(node, nil)
		if err == nil && gone {
			found.add(backend.HealthProblem{Kind: backend.HealthInaccessible, Reason: ReasonDeviceMissing,
				Message: "the device of the mount at " + path + " is gone; unpublish and stage the volume again"})
		}
		return err == nil && gone, nil
	}
	if !node.Block {
		e.examineFilesystem(found, node, path)
	}
	return true, nil
}

func (e *Engine) examineFilesystem(found *problems, node *mount.Node, path string) {
	state, err := node.FilesystemState()
	found.addState(state, err, path)
}

// addState adds what a filesystem reports of itself.
func (p *problems) addState(state mount.State, err error, path string) {
	if err != nil {
		p.add(backend.HealthProblem{Kind: backend.HealthInaccessible, Reason: ReasonFilesystemFailed,
			Message: fmt.Sprintf("the filesystem at %s cannot be read: %v; see the kernel log", path, err)})
		return
	}
	if state.Errors > 0 {
		p.add(backend.HealthProblem{Kind: backend.HealthDegraded, Reason: ReasonFilesystemErrors,
			Message: fmt.Sprintf("the filesystem recorded %d errors; stop the workload, then stage the volume again, which "+
				"checks it", state.Errors)})
	}
	if state.ForcedReadOnly {
		p.add(backend.HealthProblem{Kind: backend.HealthInaccessible, Reason: ReasonFilesystemReadOnly,
			Message: "the kernel made the filesystem read-only after an error; see the kernel log"})
	}
}
