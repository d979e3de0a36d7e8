package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// verifyPublished checks that the target is a mount point or a block device: a workload
// must not write to the machine's own filesystem because a driver answered OK too early.
// STATX_ATTR_MOUNT_ROOT needs Linux 5.8.
func verifyPublished(path string, block bool) error {
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &stat); err != nil {
		return fmt.Errorf("%w: it answered NodePublishVolume with OK, but the target path is not there: %w",
			claim.ErrDriverFailed, err)
	}
	kind := stat.Mode & unix.S_IFMT
	switch {
	case block && kind != unix.S_IFBLK:
		return fmt.Errorf("%w: it answered NodePublishVolume with OK, but %s is not a block device",
			claim.ErrDriverFailed, path)
	case !block && kind != unix.S_IFDIR:
		return fmt.Errorf("%w: it answered NodePublishVolume with OK, but %s is not a directory",
			claim.ErrDriverFailed, path)
	case !block && !mountRoot(stat):
		return fmt.Errorf("%w: it answered NodePublishVolume with OK, but nothing is mounted at %s",
			claim.ErrDriverFailed, path)
	}
	return nil
}

func groupOf(info fs.FileInfo) (int, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Gid), true
}

// statNoSync reads the attributes of a path without a request to the server of its
// filesystem: a server that is gone must not block the host.
func statNoSync(path string) (unix.Statx_t, error) {
	var stat unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	err := unix.Statx(unix.AT_FDCWD, path, flags, unix.STATX_TYPE, &stat)
	return stat, err
}

func mountRoot(stat unix.Statx_t) bool {
	return stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// isMounted reports whether something is mounted at a path.
func isMounted(path string) bool {
	stat, err := statNoSync(path)
	return err == nil && stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 && mountRoot(stat)
}

// deviceAt is the device number of the filesystem at a path, or of the block device.
func deviceAt(path string) string {
	stat, err := statNoSync(path)
	if err != nil {
		return ""
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFBLK {
		return fmt.Sprintf("%d:%d", stat.Rdev_major, stat.Rdev_minor)
	}
	return fmt.Sprintf("%d:%d", stat.Dev_major, stat.Dev_minor)
}

// answers reads the attributes of a mounted filesystem or device from its server, such as
// a FUSE daemon or an NFS server, and blocks until that answers.
func answers(path string, block bool) error {
	var stat unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_FORCE_SYNC
	err := unix.Statx(unix.AT_FDCWD, path, flags, unix.STATX_BASIC_STATS, &stat)
	switch {
	case err != nil:
		return fmt.Errorf("read its attributes: %w", err)
	case block && stat.Mode&unix.S_IFMT != unix.S_IFBLK, !block && !mountRoot(stat):
		return errors.New("it is not mounted any more")
	}
	return nil
}

// isInPlace reports whether a volume that was published is still at its target.
// Another device at the target than the driver had published is an error: no pod may
// get it instead of the volume.
func isInPlace(path string, block bool, device string) (bool, error) {
	stat, err := statNoSync(path)
	switch {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("check whether the volume is mounted at %s: %w", path, err)
	case block && stat.Mode&unix.S_IFMT != unix.S_IFBLK, !block && !mountRoot(stat):
		return false, nil
	}
	if found := deviceAt(path); device != "" && found != device {
		return false, fmt.Errorf("at %s there is device %s, the driver had published %s: "+
			"something else was mounted over the volume; unmount it", path, found, device)
	}
	return true, nil
}
