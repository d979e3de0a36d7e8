package node

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node/mount"
)

// stagedNode is the file in the staging directory that a raw block volume's
// device is bound to, so that "staged" can be seen in the mount table.
const stagedNode = "device"

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
// else is mounted there, or the device holds what must not be touched.
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
	return e.exclusive(ctx, "stage volume "+r.VolumeID, []string{volumeKey(r.VolumeID)}, func(ctx context.Context) error {
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
	place, err := e.stagingPlace(r.StagingPath)
	if err != nil {
		return err
	}
	defer closeQuietly(place)
	devices, err := e.backend.Devices(ctx, r.VolumeID)
	if err != nil {
		return err
	}
	if staged, err := e.stagedAlready(place, devices, r.Capability.FSType, flags); staged || err != nil {
		return err
	}
	if err := refuseRawUse(devices); err != nil {
		return err
	}
	device, err := e.backend.OpenDevice(ctx, backend.DeviceRequest{VolumeID: r.VolumeID, PublishContext: r.PublishContext})
	if err != nil {
		return err
	}
	defer func() { e.release(device) }()
	if err := e.points.Hit("node/stage/device"); err != nil {
		return err
	}
	tree, err := e.mountDetached(ctx, preparation{volumeID: r.VolumeID, device: device, wanted: r.Capability.FSType, flags: flags, point: "node/stage"})
	if err != nil {
		return err
	}
	defer closeQuietly(tree)
	return e.attach(ctx, place, tree, "node/stage")
}

// stagingPlace finds the staging directory, which is the orchestrator's to make.
func (e *Engine) stagingPlace(path string) (*mount.Place, error) {
	place, err := e.paths.Place("staging_target_path", path)
	if errors.Is(err, backend.ErrNotFound) {
		return nil, noDirectory("staging_target_path", path)
	}
	if err != nil {
		return nil, err
	}
	node, err := place.Open()
	if err == nil {
		if !node.Dir {
			err = fmt.Errorf("%w: staging_target_path %s is no directory", backend.ErrInvalid, path)
		}
		closeQuietly(node)
	} else if errors.Is(err, iofs.ErrNotExist) {
		err = noDirectory("staging_target_path", path)
	}
	if err != nil {
		return nil, errors.Join(err, place.Close())
	}
	return place, nil
}

// noDirectory is a failed precondition, not ErrNotFound: that would say that
// the volume does not exist.
func noDirectory(name, path string) error {
	return fmt.Errorf("%w: %s %s does not exist; the orchestrator makes it", backend.ErrPrecondition, name, path)
}

// stagedAlready tells whether the place shows the volume as it is wanted.
func (e *Engine) stagedAlready(place *mount.Place, devices []backend.Device, fsType string, flags mount.Flags) (bool, error) {
	node, err := place.Open()
	if err != nil {
		return false, err
	}
	defer closeQuietly(node)
	if !node.MountRoot {
		return false, nil
	}
	if !owns(node, devices) {
		return false, occupied(place, node)
	}
	found, err := node.FilesystemType()
	if err != nil {
		return false, err
	}
	readOnly, err := mountedReadOnly(node)
	if err != nil {
		return false, err
	}
	if (fsType != "" && found != fsType) || readOnly != flags.ReadOnly() {
		return false, fmt.Errorf("%w: staged at %s as %s, read-only = %t", backend.ErrExists, place.Path, found, readOnly)
	}
	return true, nil
}

// attach puts a detached mount in its place and reads back that it is there.
func (e *Engine) attach(ctx context.Context, place *mount.Place, tree *mount.Tree, point string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.points.Hit(point + "/ready"); err != nil {
		return err
	}
	if err := place.Attach(tree); err != nil {
		return err
	}
	return e.points.Hit(point + "/attached")
}

// release gives up the hold on a device; what is mounted holds it by itself.
func (e *Engine) release(device *backend.Device) {
	if err := device.Release(); err != nil {
		e.log.Warn("a device was not given back", "device", device.Path, "error", err)
	}
}

// stageBlock makes the device present and binds its node into the staging
// directory.
func (e *Engine) stageBlock(ctx context.Context, r StageRequest) error {
	directory, err := e.stagingPlace(r.StagingPath)
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
	place, err := e.paths.Place("staging_target_path", filepath.Join(r.StagingPath, stagedNode))
	if err != nil {
		return err
	}
	defer closeQuietly(place)
	if err := refuseOtherAccess(place, devices, readOnlyMode(r.Capability.Mode)); err != nil {
		return err
	}
	if err := e.forgetInterruptedFormat(ctx, r.VolumeID); err != nil {
		return err
	}
	return e.stageDevice(ctx, r, place, devices)
}

// stageDevice opens the volume's device and shows its node. A device outlives
// the call, so one that this call attached for nothing is closed again.
func (e *Engine) stageDevice(ctx context.Context, r StageRequest, place *mount.Place, devices []backend.Device) (err error) {
	defer func() {
		if err != nil && len(devices) == 0 {
			err = errors.Join(err, e.backend.CloseDevice(context.WithoutCancel(ctx), r.VolumeID))
		}
	}()
	device, err := e.backend.OpenDevice(ctx, backend.DeviceRequest{
		VolumeID: r.VolumeID, PublishContext: r.PublishContext, ReadOnly: readOnlyMode(r.Capability.Mode), Keep: true,
	})
	if err != nil {
		return err
	}
	defer func() { e.release(device) }()
	if err := e.points.Hit("node/stage/device"); err != nil {
		return err
	}
	return e.bindDevice(ctx, place, device, devices, "node/stage")
}

// refuseOtherAccess keeps a volume that is staged as raw block from being
// staged again with the other access, before a second device is made for it.
func refuseOtherAccess(place *mount.Place, devices []backend.Device, readOnly bool) error {
	node, err := place.Open()
	if err != nil {
		return ignoreAbsent(err)
	}
	defer closeQuietly(node)
	for _, device := range devices {
		if node.Block && node.Device == device.Number && device.ReadOnly != readOnly {
			return fmt.Errorf("%w: staged at %s with read-only = %t", backend.ErrExists, place.Path, device.ReadOnly)
		}
	}
	return nil
}

// refuseRawUse keeps a filesystem off a device that is staged as raw block.
func refuseRawUse(devices []backend.Device) error {
	places, err := rawUsesOf(devices)
	if err != nil {
		return err
	}
	if len(places) > 0 {
		return fmt.Errorf("%w: the volume is in use as raw block at %s", backend.ErrExists, several(places))
	}
	return nil
}

// refuseFilesystemUse keeps raw block use off a mounted filesystem, and our
// file out of whatever is mounted at the staging directory.
func refuseFilesystemUse(directory *mount.Place, devices []backend.Device) error {
	places, err := mountsOf(devices)
	if err != nil {
		return err
	}
	if len(places) > 0 {
		return fmt.Errorf("%w: the volume is mounted as a filesystem at %s", backend.ErrExists, several(places))
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

// forgetInterruptedFormat drops the mark of an mkfs that did not end: from now
// on others than mkfs write to the device.
func (e *Engine) forgetInterruptedFormat(ctx context.Context, volumeID string) error {
	mark, err := e.formatMark(ctx, volumeID)
	if err != nil || mark.FSType == "" || mark.Done {
		return err
	}
	return e.setFormatMark(ctx, volumeID, backend.FormatMark{})
}

// bindDevice shows a device's node at a place. A second time, with the same
// device there, is fine.
func (e *Engine) bindDevice(ctx context.Context, place *mount.Place, device *backend.Device, devices []backend.Device, point string) (err error) {
	created, err := place.MakeFile()
	if err != nil {
		return err
	}
	defer func() { err = undoMade(created, place, err) }()
	if bound, err := boundAlready(place, device, devices); bound || err != nil {
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
	return e.attach(ctx, place, tree, point)
}

func boundAlready(place *mount.Place, device *backend.Device, devices []backend.Device) (bool, error) {
	node, err := place.Open()
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
		return false, fmt.Errorf("%w: the volume is at %s with other access than read-only = %t", backend.ErrExists, place.Path, device.ReadOnly)
	}
	return false, occupied(place, node)
}

// undoMade removes what this call made when it failed afterwards, unless the
// mount is there after all, which the repeated call finds.
func undoMade(created bool, place *mount.Place, err error) error {
	if err == nil || !created {
		return err
	}
	node, openErr := place.Open()
	if openErr != nil {
		return err
	}
	mounted := node.MountRoot
	closeQuietly(node)
	if mounted {
		return err
	}
	return errors.Join(err, place.Remove())
}
