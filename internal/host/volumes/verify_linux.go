package volumes

import (
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// verifyPublished looks whether something is mounted at the target, or a block
// device is there: a workload must not write to the machine's own filesystem
// because a driver said OK too early. STATX_ATTR_MOUNT_ROOT is of Linux 5.8.
func verifyPublished(path string, block bool) error {
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &stat); err != nil {
		return fmt.Errorf("%w: it answered NodePublishVolume with OK, but the target path is not there: %w", claim.ErrDriverFailed, err)
	}
	kind := stat.Mode & unix.S_IFMT
	switch {
	case block && kind != unix.S_IFBLK:
		return fmt.Errorf("%w: it answered NodePublishVolume with OK, but %s is no block device", claim.ErrDriverFailed, path)
	case !block && kind != unix.S_IFDIR:
		return fmt.Errorf("%w: it answered NodePublishVolume with OK, but %s is no directory", claim.ErrDriverFailed, path)
	case !block && stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 && stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0:
		return fmt.Errorf("%w: it answered NodePublishVolume with OK, but nothing is mounted at %s", claim.ErrDriverFailed, path)
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
