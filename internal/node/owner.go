package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// owns reports whether a mount shows one of the volume's devices.
func owns(node *mount.Node, devices []backend.Device) bool {
	number, err := shownDevice(node)
	return err == nil && isOneOf(number, devices)
}

// shownDevice is the device behind a mount: the one whose node is bound there,
// or the one that the filesystem is on. The mount table answers for a
// filesystem that is too broken to be asked.
func shownDevice(node *mount.Node) (uint64, error) {
	if node.Block {
		return node.Device, nil
	}
	return node.FilesystemDevice()
}

func isOneOf(number uint64, devices []backend.Device) bool {
	for _, device := range devices {
		if device.Number == number {
			return true
		}
	}
	return false
}

// mayUnmount decides for one mount at the path of an Unpublish or Unstage.
// Taken away are
//   - mounts of the volume's devices;
//   - mounts of a device that this machine has no more: no process can use them, and
//     the orchestrator would repeat the call for ever.
//
// Anything else belongs to others, even when the volume is unknown: refusing
// costs an administrator one check, unmounting the wrong thing may cost data.
func mayUnmount(node *mount.Node, devices []backend.Device) (bool, error) {
	number, err := shownDevice(node)
	if err == nil {
		return isOneOf(number, devices) || mount.DeviceGone(number), nil
	}
	table, tableErr := mount.Table()
	if tableErr != nil {
		return false, errors.Join(err, tableErr)
	}
	entry := mount.ByID(table, node.MountID)
	if entry == nil {
		return false, err
	}
	for _, device := range devices {
		if mount.IsOfDevice(entry, device.Number) {
			return true, nil
		}
	}
	return mount.SourceGone(entry), nil
}

// clear takes away all mounts of the volume from a mount point, one above the other.
func (e *Engine) clear(ctx context.Context, mountPoint *mount.Point, devices []backend.Device, point string) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		mounted, err := e.checkTop(mountPoint, devices)
		if !mounted || err != nil {
			return err
		}
		if err := mountPoint.Unmount(); err != nil {
			return err
		}
		if err := e.points.Hit(point + "/unmounted"); err != nil {
			return err
		}
	}
}

// checkTop inspects the topmost mount of a mount point. The descriptor is closed before
// an unmount, since it keeps the mount busy.
func (e *Engine) checkTop(mountPoint *mount.Point, devices []backend.Device) (mounted bool, err error) {
	node, err := mountPoint.Open()
	if errors.Is(err, iofs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer closeQuietly(node)
	if !node.MountRoot {
		return false, nil
	}
	ok, err := mayUnmount(node, devices)
	if err != nil {
		return true, err
	}
	if !ok {
		return true, occupied(mountPoint, node)
	}
	return true, nil
}

// occupied names the foreign mount at a path.
func occupied(mountPoint *mount.Point, node *mount.Node) error {
	what := "something"
	if table, err := mount.Table(); err == nil {
		if entry := mount.ByID(table, node.MountID); entry != nil {
			what = fmt.Sprintf("%s of %s", entry.FSType, entry.Source)
			if node.Block {
				what = "the device node " + entry.Root
			}
		}
	}
	return fmt.Errorf("%w: %s is mounted at %s, which is not this volume; if it is not needed, unmount it by hand: "+
		"umount %s",
		backend.ErrPrecondition, what, mountPoint.Path, mountPoint.Path)
}

// typeOf is the type of a mounted filesystem. An ext3 is served by ext4, with
// the same magic number; only the mount table has the name it was mounted by.
func (e *Engine) typeOf(node *mount.Node) (string, error) {
	found, err := node.FilesystemType()
	if err != nil || found != fs.Ext4 || !slices.Contains(e.filesystem, fs.Ext3) {
		return found, err
	}
	table, err := mount.Table()
	if err != nil {
		return "", err
	}
	if entry := mount.ByID(table, node.MountID); entry != nil {
		return entry.FSType, nil
	}
	return found, nil
}

// mountedReadOnly reports whether the mount itself is read-only. A filesystem
// that the kernel turned read-only after an error is not: its mount still says
// read-write.
func mountedReadOnly(node *mount.Node) (bool, error) {
	readOnly, err := node.ReadOnly()
	if err != nil || !readOnly {
		return false, err
	}
	table, err := mount.Table()
	if err != nil {
		return false, err
	}
	entry := mount.ByID(table, node.MountID)
	return entry != nil && mount.HasOption(entry.Options, "ro"), nil
}

// checkLabel returns ErrExists if a filesystem is mounted with another SELinux label than
// a request has: the kernel gives one label to all files of a mount, so that the workload
// could not read them, or could read those of another one. Kubernetes ends the use of a
// volume with one label before it requests another.
func (e *Engine) checkLabel(node *mount.Node, flags mount.Flags) error {
	desired := flags.Context()
	if desired == "" && !e.labels() {
		return nil
	}
	table, err := e.mounts()
	if err != nil {
		return err
	}
	has := ""
	if entry := mount.ByID(table, node.MountID); entry != nil {
		has = mount.ContextOf(entry)
	}
	if !mount.SameContext(has, desired) {
		return fmt.Errorf("%w: staged with the SELinux context %q, and the request has %q; unstage the volume first",
			backend.ErrExists, has, desired)
	}
	return nil
}

// usesOf lists where the devices are mounted or bound, but for the given
// paths (as the mount table names them).
func usesOf(devices []backend.Device, except ...string) ([]string, error) {
	mounts, err := mountsOf(devices)
	if err != nil {
		return nil, err
	}
	nodes, err := rawUsesOf(devices)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(append(mounts, nodes...),
		func(path string) bool { return slices.Contains(except, path) }), nil
}

// mountsOf lists where the filesystems on the devices are mounted.
func mountsOf(devices []backend.Device) ([]string, error) {
	return pathsOf(devices, func(table []*mountinfo.Info, device backend.Device) []*mountinfo.Info {
		return mount.OfDevice(table, device.Number)
	})
}

// rawUsesOf lists where the nodes of the devices are bound.
func rawUsesOf(devices []backend.Device) ([]string, error) {
	return pathsOf(devices, func(table []*mountinfo.Info, device backend.Device) []*mountinfo.Info {
		return mount.OfNode(table, device.Path, device.Number)
	})
}

func pathsOf(
	devices []backend.Device, pick func([]*mountinfo.Info, backend.Device) []*mountinfo.Info,
) ([]string, error) {
	if len(devices) == 0 {
		return nil, nil
	}
	table, err := mount.Table()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, device := range devices {
		for _, m := range pick(table, device) {
			if !slices.Contains(found, m.Mountpoint) {
				found = append(found, m.Mountpoint)
			}
		}
	}
	return found, nil
}

func several(paths []string) string {
	const most = 4
	if len(paths) > most {
		return strings.Join(paths[:most], ", ") + fmt.Sprintf(" and %d more", len(paths)-most)
	}
	return strings.Join(paths, ", ")
}

func closeQuietly(c io.Closer) { _ = c.Close() }

func ignoreAbsent(err error) error {
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	return err
}
