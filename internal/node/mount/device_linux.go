package mount

import (
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

// IsOfDevice tells whether one mount's filesystem is on the device.
func IsOfDevice(m *mountinfo.Info, number uint64) bool {
	if m.Major != 0 {
		return unix.Mkdev(uint32(m.Major), uint32(m.Minor)) == number
	}
	if m.FSType != "btrfs" || !strings.HasPrefix(m.Source, "/dev/") {
		return false
	}
	var stat unix.Stat_t
	err := unix.Stat(m.Source, &stat)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFBLK && uint64(stat.Rdev) == number
}
