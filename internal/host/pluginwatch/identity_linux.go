package pluginwatch

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Identity distinguishes a file from another one that later has the same path. An inode
// number is soon used again, hence the time of birth.
type Identity struct {
	major, minor uint32
	inode        uint64
	seconds      int64
	nanoseconds  uint32
}

// Identify reports whether a path is a socket, and which. It follows symbolic
// links, as the kubelet does: the socket counts.
func Identify(path string) (Identity, bool, error) {
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_BTIME, &stat); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Identity{}, false, nil
		}
		return Identity{}, false, fmt.Errorf("stat %s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return Identity{}, false, nil
	}
	identity := Identity{major: stat.Dev_major, minor: stat.Dev_minor, inode: stat.Ino}
	if stat.Mask&unix.STATX_BTIME != 0 {
		identity.seconds, identity.nanoseconds = stat.Btime.Sec, stat.Btime.Nsec
	}
	return identity, true, nil
}
