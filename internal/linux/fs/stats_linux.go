package fs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ReadStats reports how full the filesystem of an open file is. The descriptor
// may be one of O_PATH. Available is the space for unprivileged users.
func ReadStats(f *os.File) (Stats, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &stat); err != nil {
		return Stats{}, fmt.Errorf("statfs %s: %w", f.Name(), err)
	}
	unit := stat.Frsize
	if unit == 0 {
		unit = stat.Bsize
	}
	s := Stats{Bytes: Usage{
		Total:     int64(stat.Blocks) * unit,
		Used:      int64(stat.Blocks-stat.Bfree) * unit,
		Available: int64(stat.Bavail) * unit,
	}}
	if stat.Files > 0 { // btrfs makes inodes as it needs them and reports 0
		s.Inodes = &Usage{Total: int64(stat.Files), Used: int64(stat.Files - stat.Ffree), Available: int64(stat.Ffree)}
	}
	return s, nil
}
