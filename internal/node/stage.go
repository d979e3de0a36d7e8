package node

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// StageRequest asks to make a volume ready on this machine.
type StageRequest struct {
	VolumeID, StagingPath string
	Capability            backend.Capability
	PublishContext        map[string]string
	VolumeContext         map[string]string
}

// Stage makes the volume's filesystem available at the staging path, formatting
// a blank device first; or, for raw block, makes its device present. Repeating
// it changes nothing and starts no process.
//
// ErrInvalid: a path, filesystem type or mount flag. ErrNotFound: no such
// volume. ErrExists: staged there in another way. ErrPrecondition: something
// else is mounted there, or the device contains data that must not be touched.
// ErrDataLoss: the filesystem is damaged or gone. ErrBusy: a call is running.
func (e *Engine) Stage(ctx context.Context, r StageRequest) error {
	if err := checkID(r.VolumeID); err != nil {
		return err
	}
	if err := e.paths.CheckPath("staging_target_path", r.StagingPath); err != nil {
		return err
	}
	flags, err := e.checkCapability(r.Capability, false)
	if err != nil {
		return err
	}
	return e.calls.Run(ctx, "stage volume "+r.VolumeID, []string{VolumeKey(r.VolumeID)}, func(ctx context.Context) error {
		if r.Capability.Block {
			return e.stageBlock(ctx, r)
		}
		return e.stageFilesystem(ctx, r, flags)
	})
}

func checkID(id string) error {
	if id == "" {
		return fmt.Errorf("%w: volume_id is missing", backend.ErrInvalid)
	}
	return nil
}

func (e *Engine) stageFilesystem(ctx context.Context, r StageRequest, flags mount.Flags) error {
	mountPoint, err := e.stagingPoint(r.StagingPath)
	if err != nil {
		return err
	}
	defer closeQuietly(mountPoint)
	devices, err := e.backend.Devices(ctx, r.VolumeID)
	if err != nil {
		return err
	}
	if staged, err := e.stagedAlready(mountPoint, devices, r.Capability.FSType, flags); staged || err != nil {
		return err
	}
	if err := refuseRawUse(devices); err != nil {
		return err
	}
	device, err := e.openDevice(ctx, backend.DeviceRequest{
		VolumeID: r.VolumeID, PublishContext: r.PublishContext, VolumeContext: r.VolumeContext,
	})
	if err != nil {
		return err
	}
	defer func() { e.release(device) }()
	if err := e.points.Hit("node/stage/device"); err != nil {
		return err
	}
	tree, err := e.mountDetached(ctx, preparation{volumeID: r.VolumeID, device: device, desired: r.Capability.FSType,
		flags: flags, point: "node/stage"})
	if err != nil {
		return err
	}
	defer closeQuietly(tree)
	return e.attach(ctx, mountPoint, tree, "node/stage")
}

// stagingPoint finds the staging directory, which is the orchestrator's to make.
func (e *Engine) stagingPoint(path string) (*mount.Point, error) {
	mountPoint, err := e.paths.Resolve("staging_target_path", path)
	if errors.Is(err, backend.ErrNotFound) {
		return nil, noDirectory("staging_target_path", path)
	}
	if err != nil {
		return nil, err
	}
	node, err := mountPoint.Open()
	if err == nil {
		if !node.Dir {
			err = fmt.Errorf("%w: staging_target_path %s is not a directory", backend.ErrInvalid, path)
		}
		closeQuietly(node)
	} else if errors.Is(err, iofs.ErrNotExist) {
		err = noDirectory("staging_target_path", path)
	}
	if err != nil {
		return nil, errors.Join(err, mountPoint.Close())
	}
	return mountPoint, nil
}

// noDirectory is a failed precondition, not ErrNotFound: that would say that
// the volume does not exist.
func noDirectory(name, path string) error {
	return fmt.Errorf("%w: %s %s does not exist; the orchestrator makes it", backend.ErrPrecondition, name, path)
}

// stagedAlready reports whether the path shows the volume as it was requested.
func (e *Engine) stagedAlready(
	mountPoint *mount.Point, devices []backend.Device, fsType string, flags mount.Flags,
) (bool, error) {
	node, err := mountPoint.Open()
	if err != nil {
		return false, err
	}
	defer closeQuietly(node)
	if !node.MountRoot {
		return false, nil
	}
	if !owns(node, devices) {
		return false, occupied(mountPoint, node)
	}
	found, err := e.typeOf(node)
	if err != nil {
		return false, err
	}
	readOnly, err := mountedReadOnly(node)
	if err != nil {
		return false, err
	}
	if (fsType != "" && found != fsType) || readOnly != flags.ReadOnly() {
		return false, fmt.Errorf("%w: staged at %s as %s, read-only = %t",
			backend.ErrExists, mountPoint.Path, found, readOnly)
	}
	if err := e.checkLabel(node, flags); err != nil {
		return false, err
	}
	return true, nil
}

// attach puts a detached mount at its path and reads back that it is there.
func (e *Engine) attach(ctx context.Context, mountPoint *mount.Point, tree *mount.Tree, point string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.points.Hit(point + "/ready"); err != nil {
		return err
	}
	if err := mountPoint.Attach(tree); err != nil {
		return err
	}
	return e.points.Hit(point + "/attached")
}

// release closes a device; a mount keeps it by itself.
func (e *Engine) release(device *backend.Device) {
	if err := device.Release(); err != nil {
		e.log.Warn("a device could not be closed", "device", device.Path, "error", err)
	}
}

// undoMade removes the mount and the device of a call that failed afterwards, unless
// the mount is there after all, which the repeated call finds.
func undoMade(created bool, mountPoint *mount.Point, err error) error {
	if err == nil || !created {
		return err
	}
	node, openErr := mountPoint.Open()
	if openErr != nil {
		return err
	}
	mounted := node.MountRoot
	closeQuietly(node)
	if mounted {
		return err
	}
	return errors.Join(err, mountPoint.Remove())
}
