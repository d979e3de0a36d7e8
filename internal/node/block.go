package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// stagedNode is the file in the staging directory that a raw block volume's
// device is bound to, so that "staged" can be seen in the mount table.
const stagedNode = "device"

// stageBlock makes the device present and binds its node into the staging
// directory.
func (e *Engine) stageBlock(ctx context.Context, r StageRequest) error {
	directory, err := e.stagingPoint(r.StagingPath)
	if err != nil {
		return err
	}
	defer closeQuietly(directory)
	devices, err := e.backend.Devices(ctx, r.VolumeID)
	if err != nil {
		return err
	}
	if err := refuseFilesystemUse(directory, devices); err != nil {
		return err
	}
	mountPoint, err := e.paths.Resolve("staging_target_path", filepath.Join(r.StagingPath, stagedNode))
	if err != nil {
		return err
	}
	defer closeQuietly(mountPoint)
	if err := e.forgetInterruptedFormat(ctx, r.VolumeID); err != nil {
		return err
	}
	return e.stageDevice(ctx, r, mountPoint, devices)
}

// stageDevice opens the volume's device and shows its node. A device outlives
// the call, so one that this call attached in vain is closed.
func (e *Engine) stageDevice(
	ctx context.Context, r StageRequest, mountPoint *mount.Point, devices []backend.Device) (err error,
) {
	defer func() {
		if err != nil && len(devices) == 0 && !mayShowDevice(mountPoint) {
			err = errors.Join(err, e.backend.CloseDevice(context.WithoutCancel(ctx), r.VolumeID))
		}
	}()
	readOnly, err := accessFor(mountPoint, devices, r.Capability.Mode)
	if err != nil {
		return err
	}
	device, err := e.openDevice(ctx, backend.DeviceRequest{
		VolumeID: r.VolumeID, PublishContext: r.PublishContext, VolumeContext: r.VolumeContext,
		ReadOnly: readOnly, Keep: true,
	})
	if err != nil {
		return err
	}
	defer func() { e.release(device) }()
	if err := e.points.Hit("node/stage/device"); err != nil {
		return err
	}
	return e.bindDevice(ctx, mountPoint, device, devices, "node/stage")
}

// mayShowDevice reports whether something is mounted at a path, or that is unknown.
// A bind mount of a device node does not keep the device open: once that is closed, the
// path would show the next device with its number.
func mayShowDevice(mountPoint *mount.Point) bool {
	node, err := mountPoint.Open()
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer closeQuietly(node)
	return node.MountRoot
}

// accessFor is the access that the device is staged with: it does not change while a
// pod has the volume. Without a pod the access mode decides, and each publish decides
// again.
func accessFor(mountPoint *mount.Point, devices []backend.Device, mode backend.AccessMode) (readOnly bool, err error) {
	uses, err := usesOf(devices, mountPoint.Real())
	if err != nil || len(uses) == 0 {
		return readOnlyMode(mode), err
	}
	return devices[0].ReadOnly, nil
}

// refuseRawUse keeps a filesystem off a device that is staged as raw block.
func refuseRawUse(devices []backend.Device) error {
	paths, err := rawUsesOf(devices)
	if err != nil {
		return err
	}
	if len(paths) > 0 {
		return fmt.Errorf("%w: the volume is in use as raw block at %s", backend.ErrExists, several(paths))
	}
	return nil
}

// refuseFilesystemUse keeps raw block use off a mounted filesystem, and our
// file out of a filesystem that is mounted at the staging directory.
func refuseFilesystemUse(directory *mount.Point, devices []backend.Device) error {
	paths, err := mountsOf(devices)
	if err != nil {
		return err
	}
	if len(paths) > 0 {
		return fmt.Errorf("%w: the volume is mounted as a filesystem at %s", backend.ErrExists, several(paths))
	}
	node, err := directory.Open()
	if err != nil {
		return err
	}
	defer closeQuietly(node)
	if node.MountRoot {
		return occupied(directory, node)
	}
	return nil
}

// forgetInterruptedFormat drops the mark of an mkfs or a resize2fs that did not
// end: from now on other programs write to the device.
func (e *Engine) forgetInterruptedFormat(ctx context.Context, volumeID string) error {
	mark, err := e.formatMark(ctx, volumeID)
	switch {
	case err != nil:
		return err
	case mark.FSType != "" && !mark.Done:
		return e.setFormatMark(ctx, volumeID, backend.FormatMark{})
	case mark.Resizing:
		mark.Resizing = false
		return e.setFormatMark(ctx, volumeID, mark)
	}
	return nil
}

// bindDevice shows a device's node at a path. A second time, with the same
// device there, is fine.
func (e *Engine) bindDevice(
	ctx context.Context, mountPoint *mount.Point, device *backend.Device, devices []backend.Device, point string,
) (err error) {
	created, err := mountPoint.MakeFile()
	if err != nil {
		return err
	}
	defer func() { err = undoMade(created, mountPoint, err) }()
	if bound, err := boundAlready(mountPoint, device, devices); bound || err != nil {
		return err
	}
	if err := e.points.Hit(point + "/made"); err != nil {
		return err
	}
	tree, err := mount.BindDevice(device.Path, device.Number)
	if err != nil {
		return err
	}
	defer closeQuietly(tree)
	return e.attach(ctx, mountPoint, tree, point)
}

func boundAlready(mountPoint *mount.Point, device *backend.Device, devices []backend.Device) (bool, error) {
	node, err := mountPoint.Open()
	if err != nil {
		return false, err
	}
	defer closeQuietly(node)
	switch {
	case !node.MountRoot:
		return false, nil
	case node.Block && node.Device == device.Number:
		return true, nil
	case owns(node, devices):
		return false, fmt.Errorf("%w: another device of the volume than %s is at %s",
			backend.ErrExists, device.Path, mountPoint.Path)
	}
	return false, occupied(mountPoint, node)
}

// publishBlock shows the device's node at the target. A read-only bind of a node
// does not keep a process from writing to the device, and a second device over
// the same blocks would show stale data; so the device itself is read-only or
// writable, for all of its users.
func (e *Engine) publishBlock(ctx context.Context, p publication) error {
	staged, err := p.staged()
	if err != nil {
		return err
	}
	closeQuietly(staged)
	readOnly := p.request.ReadOnly || readOnlyMode(p.request.Capability.Mode)
	if published, err := blockPublishedAlready(p, readOnly); published || err != nil {
		return err
	}
	if err := e.checkSoleTarget(p); err != nil {
		return err
	}
	if err := refuseOtherAccess(p, readOnly); err != nil {
		return err
	}
	device, err := e.backend.OpenDevice(ctx, backend.DeviceRequest{
		VolumeID: p.request.VolumeID, PublishContext: p.request.PublishContext, VolumeContext: p.request.VolumeContext,
		ReadOnly: readOnly, Keep: true,
	})
	if err != nil {
		return err
	}
	defer func() { e.release(device) }()
	if device.ReadOnly != readOnly {
		return fmt.Errorf("device %s: %w: read-only = %t; want %t",
			device.Path, backend.ErrPrecondition, device.ReadOnly, readOnly)
	}
	return e.bindDevice(ctx, p.target, device, p.devices, "node/publish")
}

// blockPublishedAlready compares the target with the request.
func blockPublishedAlready(p publication, readOnly bool) (bool, error) {
	node, err := p.target.Open()
	if err != nil {
		return false, ignoreAbsent(err)
	}
	defer closeQuietly(node)
	if !node.MountRoot {
		return false, nil
	}
	for _, device := range p.devices {
		if !node.Block || node.Device != device.Number {
			continue
		}
		if device.ReadOnly != readOnly {
			return false, fmt.Errorf("%w: published at %s with read-only = %t",
				backend.ErrExists, p.target.Path, device.ReadOnly)
		}
		return true, nil
	}
	return false, occupied(p.target, node)
}

// refuseOtherAccess keeps the access of the device as it is while another
// target has it.
func refuseOtherAccess(p publication, readOnly bool) error {
	for _, device := range p.devices {
		if device.ReadOnly == readOnly {
			continue
		}
		uses, err := usesOf([]backend.Device{device}, p.staging.Real(), p.target.Real())
		if err != nil {
			return err
		}
		if len(uses) > 0 {
			return fmt.Errorf("%w: the raw block volume is published with read-only = %t at %s; all pods of a node have the "+
				"same access to a block device: publish it with read-only = %t, or unpublish it there first",
				backend.ErrPrecondition, device.ReadOnly, several(uses), device.ReadOnly)
		}
	}
	return nil
}
