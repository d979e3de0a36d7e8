package inside

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// hiddenPaths lists every path of the machine that leads to one of the
// directories, or to a part of one: its own, and those below other mounts of the
// same filesystem. The paths have no links, and outer ones come first.
func hiddenPaths(directories []string) ([]string, error) {
	if len(directories) == 0 {
		return nil, nil
	}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("list the mounts: %w", err)
	}
	var paths []string
	for _, directory := range directories {
		directory, err := filepath.EvalSymlinks(directory)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a pool that was not made yet
		}
		if err != nil {
			return nil, err
		}
		paths = append(paths, directory)
		paths = append(paths, otherPaths(directory, mounts)...)
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(cmp.Compare(depth(a), depth(b)), cmp.Compare(a, b)) })
	return slices.Compact(paths), nil
}

// otherPaths are the paths below which another mount has the directory, or a part
// of it (proc_pid_mountinfo(5): field 4 is the mount's root in its filesystem).
func otherPaths(directory string, mounts []*mountinfo.Info) (paths []string) {
	var on *mountinfo.Info
	for _, m := range mounts { // of mounts at one path, the last is on top
		if within(directory, m.Mountpoint) && (on == nil || len(m.Mountpoint) >= len(on.Mountpoint)) {
			on = m
		}
	}
	if on == nil {
		return nil
	}
	inFilesystem := filepath.Join(on.Root, strings.TrimPrefix(directory, on.Mountpoint))
	for _, m := range mounts {
		if m.Major != on.Major || m.Minor != on.Minor {
			continue
		}
		switch {
		case within(inFilesystem, m.Root):
			paths = append(paths, filepath.Join(m.Mountpoint, strings.TrimPrefix(inFilesystem, m.Root)))
		case within(m.Root, inFilesystem):
			paths = append(paths, m.Mountpoint)
		}
	}
	return slices.DeleteFunc(paths, func(path string) bool { return path == "/" || within(path, "/proc") })
}

// cover mounts an empty directory over each path of the view. The container's own
// mount points can be made in it until it is sealed.
func (v view) cover(paths []string) (covers []*os.File, err error) {
	if len(paths) == 0 {
		return nil, nil
	}
	root, err := v.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	for _, path := range paths {
		target, err := openBeneath(int(root.Fd()), strings.TrimPrefix(path, "/"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue // within another one, or below something else that is mounted
		}
		if err != nil {
			return nil, fmt.Errorf("hide %s: %w", path, err)
		}
		cover, err := hide(target)
		if err != nil {
			return nil, fmt.Errorf("hide %s: %w", path, err)
		}
		covers = append(covers, cover)
	}
	return covers, nil
}

// hide mounts an empty directory, or, over a file, an empty file.
func hide(target *os.File) (*os.File, error) {
	defer func() { _ = target.Close() }()
	var stat unix.Stat_t
	if err := unix.Fstat(int(target.Fd()), &stat); err != nil {
		return nil, err
	}
	cover, err := newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC,
		[][2]string{{"source", "holdfast"}, {"mode", "0555"}})
	if err != nil {
		return nil, err
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		return cover, attach(cover, target)
	}
	defer func() { _ = cover.Close() }()
	if err := makePoint(int(cover.Fd()), "empty", true); err != nil {
		return nil, err
	}
	tree, err := unix.OpenTree(int(cover.Fd()), "empty", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(tree), target.Name())
	return file, attach(file, target)
}

// seal makes the covers read-only. What is mounted in them stays as it is.
func seal(covers []*os.File) error {
	for _, cover := range covers {
		err := unix.MountSetattr(int(cover.Fd()), "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		if err := errors.Join(err, cover.Close()); err != nil {
			return fmt.Errorf("hide the host's directories: %w", err)
		}
	}
	return nil
}

// isStandardDevice reports whether a confined container has an entry of /dev: what
// container runtimes provide (OCI runtime specification, "Default Devices"), and
// no disk.
func isStandardDevice(name string) bool {
	return slices.Contains([]string{
		"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue", "fd", "stdin",
		"stdout", "stderr", "log",
	}, name)
}

// mountDevices makes the container's own /dev.
func (v view) mountDevices(directory int, name string) error {
	if err := unix.Mkdirat(directory, name, 0o755); err != nil {
		return err
	}
	target, err := openBeneath(directory, name)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	devices, err := v.mirror("/dev", target)
	if err != nil {
		return err
	}
	return devices.Close()
}

// mountTerminals makes terminals that are the container's own.
func mountTerminals(directory int, name string) error {
	if err := unix.Mkdirat(directory, name, 0o755); err != nil {
		return err
	}
	terminals, err := newMount("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC,
		[][2]string{{"source", "devpts"}, {"ptmxmode", "0666"}, {"mode", "0620"}})
	if err != nil {
		return err
	}
	defer func() { _ = terminals.Close() }()
	return attachAt(terminals, directory, name)
}

// mountProc shows the processes of the container's own namespace: those of the
// machine's /proc would be numbered otherwise. The settings of the machine's kernel
// are read-only in a confined one: root may write them without any capability, and
// some name a program that the kernel starts (core_pattern).
func (v view) mountProc(directory int, name string) error {
	if err := unix.Mkdirat(directory, name, 0o555); err != nil {
		return err
	}
	proc, err := newMount("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC,
		[][2]string{{"source", "proc"}})
	if err != nil {
		return err
	}
	defer func() { _ = proc.Close() }()
	if err := attachAt(proc, directory, name); err != nil || !v.confined {
		return err
	}
	for _, entry := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi"} {
		if err := readOnly(int(proc.Fd()), entry); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make %s read-only: %w", entry, err)
		}
	}
	return nil
}

// readOnly mounts a read-only copy of an entry over it.
func readOnly(directory int, name string) error {
	tree, err := unix.OpenTree(directory, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return err
	}
	copied := os.NewFile(uintptr(tree), name)
	defer func() { _ = copied.Close() }()
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return err
	}
	return attachAt(copied, directory, name)
}
