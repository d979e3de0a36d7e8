package volumes

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// Mounts is what the manager reads of the machine's mounts. Only drivers mount and
// unmount.
type Mounts interface {
	// Below returns the mount points at a directory and below it, in the order in which
	// they were mounted.
	Below(directory string) ([]string, error)
	// At describes a path from what the kernel knows of it: a server that is gone, of
	// NFS or FUSE, must not block the host. With ask, the server of its filesystem is
	// asked. The error is fs.ErrNotExist if nothing is there.
	At(path string, ask bool) (PathInfo, error)
	// OthersOf returns the other mount points of the filesystem that is mounted at a path,
	// or of a part of it. It leaves out copies that mount propagation made.
	OthersOf(path string) ([]string, error)
}

// PathInfo describes a path.
type PathInfo struct {
	Directory, Block bool
	// Mounted: a filesystem is mounted at the path. Kernels before 5.8 do not say
	// (STATX_ATTR_MOUNT_ROOT): Unknown is true then.
	Mounted, Unknown bool
	// Device is the number (major:minor) of the path's filesystem, or of the block device.
	Device string
}

// isVolume reports whether a volume may be there: a block device, or a mount point.
func (p PathInfo) isVolume(block bool) bool {
	if block {
		return p.Block
	}
	return p.Mounted || p.Unknown
}

func (m *Manager) isMounted(path string) bool {
	at, err := m.options.Mounts.At(path, false)
	return err == nil && at.Mounted
}

// isBlockDevice reports whether a path is a block device.
func (m *Manager) isBlockDevice(path string) bool {
	at, err := m.options.Mounts.At(path, false)
	return err == nil && at.Block
}

// deviceAt is the device number of the filesystem at a path, or of the block device; "" if
// it is not known.
func (m *Manager) deviceAt(path string) string {
	at, err := m.options.Mounts.At(path, false)
	if err != nil {
		return ""
	}
	return at.Device
}

// verifyPublished checks that the target is a mount point or a block device: a workload
// must not write to the machine's own filesystem because a driver answered OK too early.
func (m *Manager) verifyPublished(path string, block bool) error {
	at, err := m.options.Mounts.At(path, true)
	switch {
	case err != nil:
		return fmt.Errorf("%w: it answered NodePublishVolume with OK, but the target path is not there: %w",
			claim.ErrDriverFailed, err)
	case block && !at.Block:
		return fmt.Errorf("%w: it answered NodePublishVolume with OK, but %s is not a block device",
			claim.ErrDriverFailed, path)
	case !block && !at.Directory:
		return fmt.Errorf("%w: it answered NodePublishVolume with OK, but %s is not a directory",
			claim.ErrDriverFailed, path)
	case !at.isVolume(block):
		return fmt.Errorf("%w: it answered NodePublishVolume with OK, but nothing is mounted at %s",
			claim.ErrDriverFailed, path)
	}
	return nil
}

// answers reads the attributes of a mounted filesystem or device from its server, such as
// a FUSE daemon or an NFS server, and blocks until that answers.
func (m *Manager) answers(path string, block bool) error {
	at, err := m.options.Mounts.At(path, true)
	switch {
	case err != nil:
		return fmt.Errorf("read its attributes: %w", err)
	case !at.isVolume(block):
		return errors.New("it is not mounted any more")
	}
	return nil
}

// isInPlace reports whether a volume that was published is still at its target.
// Another device at the target than the driver had published is an error: no pod may
// get it instead of the volume.
func (m *Manager) isInPlace(path string, block bool, device string) (bool, error) {
	at, err := m.options.Mounts.At(path, false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("check whether the volume is mounted at %s: %w", path, err)
	case !at.isVolume(block):
		return false, nil
	}
	if device != "" && at.Device != device {
		return false, fmt.Errorf("at %s there is device %s, the driver had published %s: "+
			"something else was mounted over the volume; unmount it", path, at.Device, device)
	}
	return true, nil
}

// readMountTable reads the mount points below a directory.
func (m *Manager) readMountTable(directory string) (mountTable, error) {
	mounts, err := m.options.Mounts.Below(directory)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	table := mountTable{}
	for _, path := range mounts {
		table[path] = true
	}
	return table, nil
}

func (m *Manager) nothingMounted(directory string) error {
	mounts, err := m.readMountTable(directory)
	for path := range mounts {
		return fmt.Errorf("something is mounted at %s, but not by this host: unmount it", path)
	}
	return err
}
