// Package fs makes, checks, grows and freezes the filesystems that volumes may
// have: ext4, ext3, xfs and btrfs. Programs are run for making and checking only;
// everything else is ioctls on an open directory of the mounted filesystem.
package fs

// The filesystems of volumes, by their names in mount(8).
const (
	Ext4  = "ext4"
	Ext3  = "ext3"
	XFS   = "xfs"
	Btrfs = "btrfs"
)

// Usage counts units of one kind: bytes or inodes.
type Usage struct {
	Total, Used, Available int64
}

// Stats is how full a filesystem is. Inodes is nil when the filesystem has no
// fixed number of them (btrfs).
type Stats struct {
	Bytes  Usage
	Inodes *Usage
}

// WorthGrowing reports whether a filesystem of size bytes would get larger on a
// device of so many. mkfs leaves the end of a device unused when it is too small for a
// group's metadata; trying to grow into it at every stage would cost time and gain
// nothing.
func WorthGrowing(fsType string, size, device int64) bool {
	const mebibyte = 1 << 20
	if isExt(fsType) {
		return device-size >= min(4*mebibyte, size/16)
	}
	return device-size >= mebibyte
}

// GrowsOffline reports whether GrowOffline supports a filesystem.
func GrowsOffline(fsType string) bool { return isExt(fsType) }

// isExt reports whether the kernel's ext4 serves a filesystem.
func isExt(fsType string) bool { return fsType == Ext4 || fsType == Ext3 }
