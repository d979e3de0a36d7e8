package mount

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/linux/kernel"
)

// State is the health that a mounted filesystem reports.
type State struct {
	// Errors it has recorded since it was last checked.
	Errors int
	// ForcedReadOnly: the kernel stopped writes although it is mounted for them.
	ForcedReadOnly bool
}

// FilesystemState asks the filesystem of a mount. The error is that its root
// cannot be read any more, as after the shutdown of an xfs.
func (n *Node) FilesystemState() (State, error) {
	table, err := Table()
	if err != nil {
		return State{}, err
	}
	return n.FilesystemStateIn(table)
}

// FilesystemStateIn is FilesystemState with a mount table that was read a moment ago.
func (n *Node) FilesystemStateIn(table []*mountinfo.Info) (State, error) {
	var state State
	dir, err := n.readRoot()
	if err != nil {
		return state, err
	}
	defer func() { _ = dir.Close() }()
	entry := ByID(table, n.MountID)
	if entry == nil {
		return state, nil
	}
	stopped, err := StoppedWrites(dir)
	if err != nil {
		return state, err
	}
	state.ForcedReadOnly = stopped && !HasOption(entry.Options, "ro")
	device, err := n.FilesystemDevice()
	if err != nil {
		return state, err
	}
	state.Errors = errorCount(entry.FSType, device)
	return state, nil
}

func (n *Node) readRoot() (*os.File, error) {
	dir, err := n.OpenDir()
	if err != nil {
		return nil, err
	}
	if _, err = dir.Readdirnames(1); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// kernelShowsStop reports a Linux of 6.15 or later.
func kernelShowsStop() bool { return kernel.AtLeast(6, 15) }

// missingAttribute is an extended attribute that no file has.
const missingAttribute = "trusted.holdfast.missing"

// RefusesTransaction reports whether the filesystem of a directory fails to start a
// transaction. It has the filesystem remove an attribute that the directory lacks,
// which changes nothing. A frozen filesystem blocks the call until it is thawed.
func RefusesTransaction(dir *os.File) bool {
	connection, err := dir.SyscallConn()
	if err != nil {
		return false
	}
	var refusal error
	err = connection.Control(func(descriptor uintptr) {
		refusal = unix.Fremovexattr(int(descriptor), missingAttribute) //nolint:gosec // a descriptor is small
	})
	return err == nil && (errors.Is(refusal, unix.EROFS) || errors.Is(refusal, unix.EIO))
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
