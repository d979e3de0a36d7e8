package volumes

import (
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// At implements Mounts.
func (KernelMounts) At(path string, ask bool) (PathInfo, error) {
	var stat unix.Statx_t
	flags, fields := unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE
	if ask {
		flags, fields = unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS
	}
	if err := unix.Statx(unix.AT_FDCWD, path, flags, fields, &stat); err != nil {
		return PathInfo{}, err
	}
	kind := stat.Mode & unix.S_IFMT
	at := PathInfo{
		Directory: kind == unix.S_IFDIR, Block: kind == unix.S_IFBLK,
		Mounted: stat.Attributes_mask&stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
		Unknown: stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0,
		Device:  fmt.Sprintf("%d:%d", stat.Dev_major, stat.Dev_minor),
	}
	if at.Block {
		at.Device = fmt.Sprintf("%d:%d", stat.Rdev_major, stat.Rdev_minor)
	}
	return at, nil
}

func groupOf(info fs.FileInfo) (int, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Gid), true
}
