package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// OfDevice selects the mounts whose filesystem is on the block device with
// this number (st_rdev), bind mounts of parts of it included. A btrfs has an
// anonymous number in the table; its device is known by the source's node.
func OfDevice(table []*mountinfo.Info, number uint64) []*mountinfo.Info {
	var found []*mountinfo.Info
	for _, m := range table {
		if IsOfDevice(m, number) {
			found = append(found, m)
		}
	}
	return found
}

// ByDevice maps the numbers of block devices to the mounts whose filesystem is on them.
func ByDevice(table []*mountinfo.Info) map[uint64][]*mountinfo.Info {
	mounts := map[uint64][]*mountinfo.Info{}
	for _, m := range table {
		if number, err := sourceNumber(m); err == nil {
			mounts[number] = append(mounts[number], m)
		}
	}
	return mounts
}

// IsOfDevice reports whether one mount's filesystem is on the device.
func IsOfDevice(m *mountinfo.Info, number uint64) bool {
	found, err := sourceNumber(m)
	return err == nil && found == number
}

// sourceNumber is the number of the block device that a mount's filesystem is
// on, by the mount table alone. It is anonymous for a filesystem without a device.
func sourceNumber(m *mountinfo.Info) (uint64, error) {
	number := unix.Mkdev(uint32(m.Major), uint32(m.Minor))
	if m.Major != 0 || m.FSType != "btrfs" || !strings.HasPrefix(m.Source, "/dev/") {
		return number, nil
	}
	var stat unix.Stat_t
	if err := unix.Stat(m.Source, &stat); err != nil {
		return 0, fmt.Errorf("device %s of the mount at %s: %w", m.Source, m.Mountpoint, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return number, nil
	}
	return uint64(stat.Rdev), nil
}

// OfNode selects the mounts that show the node of a block device itself, as
// raw block use does. They are found by the name of the node, which a bind
// mount keeps as its root, and confirmed by the number at the mount point.
func OfNode(table []*mountinfo.Info, path string, number uint64) []*mountinfo.Info {
	var found []*mountinfo.Info
	for _, m := range table {
		if filepath.Base(m.Root) != filepath.Base(path) {
			continue
		}
		var stat unix.Stat_t
		err := unix.Lstat(m.Mountpoint, &stat)
		if err == nil && stat.Mode&unix.S_IFMT == unix.S_IFBLK && uint64(stat.Rdev) == number {
			found = append(found, m)
		}
	}
	return found
}

// DeviceGone reports that the machine has no such block device any more: it was
// unplugged, or it is a loop device without a file. Numbers of filesystems
// without a device (major 0) are never gone.
func DeviceGone(number uint64) bool {
	if unix.Major(number) == 0 {
		return false
	}
	size, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/size", unix.Major(number), unix.Minor(number)))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return true
	}
	return err == nil && strings.TrimSpace(string(size)) == "0"
}

// SourceGone reports that the device of a mount is gone, by the mount table
// alone: the filesystem may be too broken to be asked.
func SourceGone(m *mountinfo.Info) bool {
	if m.Major != 0 {
		return DeviceGone(unix.Mkdev(uint32(m.Major), uint32(m.Minor)))
	}
	if m.FSType != "btrfs" || !strings.HasPrefix(m.Source, "/dev/") {
		return false
	}
	size, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(m.Source), "size"))
	return errors.Is(err, fs.ErrNotExist) || (err == nil && strings.TrimSpace(string(size)) == "0")
}
