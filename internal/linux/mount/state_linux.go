package mount

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// State is what a mounted filesystem reports of its health.
type State struct {
	// Errors it has recorded since it was last checked.
	Errors int
	// ForcedReadOnly: the kernel stopped writes although it is mounted for them.
	ForcedReadOnly bool
}

// FilesystemState asks the filesystem of a mount. The error is that its root
// cannot be read any more, as after the shutdown of an xfs.
func (n *Node) FilesystemState() (State, error) {
	var state State
	if err := n.readRoot(); err != nil {
		return state, err
	}
	table, err := Table()
	if err != nil {
		return state, err
	}
	entry := ByID(table, n.MountID)
	if entry == nil {
		return state, nil
	}
	superReadOnly := HasOption(entry.VFSOptions, "ro") || HasOption(entry.VFSOptions, "emergency_ro") || HasOption(entry.VFSOptions, "shutdown")
	state.ForcedReadOnly = superReadOnly && !HasOption(entry.Options, "ro")
	device, err := n.FilesystemDevice()
	if err != nil {
		return state, err
	}
	state.Errors = errorCount(entry.FSType, device)
	return state, nil
}

func (n *Node) readRoot() error {
	dir, err := n.OpenDir()
	if err != nil {
		return err
	}
	_, err = dir.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, dir.Close())
}

// errorCount reads the counters of sysfs: ext4's errors_count, and the device
// statistics of btrfs. xfs has none; it shuts down instead.
func errorCount(fsType string, number uint64) int {
	link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(number), unix.Minor(number)))
	if err != nil {
		return 0
	}
	name := filepath.Base(link)
	switch fsType {
	case "ext4", "ext3":
		data, err := os.ReadFile(filepath.Join("/sys/fs/ext4", name, "errors_count"))
		if err != nil {
			return 0
		}
		count, _ := strconv.Atoi(strings.TrimSpace(string(data)))
		return count
	case "btrfs":
		return btrfsErrors(name)
	}
	return 0
}

// btrfsErrors adds up the statistics of the filesystem that uses the device:
// /sys/fs/btrfs/UUID/devices/NAME and …/devinfo/1/error_stats.
func btrfsErrors(name string) int {
	uses, err := filepath.Glob(filepath.Join("/sys/fs/btrfs/*/devices", name))
	if err != nil || len(uses) == 0 {
		return 0
	}
	filesystem := filepath.Dir(filepath.Dir(uses[0]))
	stats, err := filepath.Glob(filepath.Join(filesystem, "devinfo/*/error_stats"))
	if err != nil {
		return 0
	}
	total := 0
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			if len(fields) == 2 {
				count, _ := strconv.Atoi(fields[1])
				total += count
			}
		}
	}
	return total
}
