package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Above a directory that is mirrored, others may be allowed to write, and to
// lead its path elsewhere at any time. So it is opened once on each side, over no
// link, and everything goes by these descriptors.

// mirror puts an empty directory over one of the view, and shows in it every
// entry that the machine's directory has. It returns the new one.
func (v view) mirror(directory string, target *os.File) (*os.File, error) {
	mirror, err := v.tryMirror(directory, target)
	if err != nil {
		return nil, fmt.Errorf("mirror %s: %w", directory, err)
	}
	return mirror, nil
}

func (v view) tryMirror(directory string, target *os.File) (_ *os.File, err error) {
	source, err := openPath(directory)
	if err != nil {
		return nil, err
	}
	defer func() { _ = source.Close() }()
	mirror, err := emptyLike(source)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = mirror.Close()
		}
	}()
	if err := attach(mirror, target); err != nil {
		return nil, err
	}
	if directory == "/" {
		// Below, whole trees are bound that contain this very mount: unbindable, it
		// is left out of them.
		if err := unix.MountSetattr(int(mirror.Fd()), "", unix.AT_EMPTY_PATH, &unix.MountAttr{Propagation: unix.MS_UNBINDABLE}); err != nil {
			return nil, fmt.Errorf("prepare the new root: %w", err)
		}
	}
	entries, err := entriesOf(source, directory)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if v.confined && directory == "/dev" && !isStandardDevice(entry.Name()) {
			continue
		}
		err := v.mirrorEntry(source, mirror, filepath.Join(directory, entry.Name()), entry)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w", entry.Name(), err)
		}
	}
	return mirror, nil
}

// openPath opens a directory of the machine by a path without links.
func openPath(path string) (*os.File, error) {
	descriptor, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	root := os.NewFile(uintptr(descriptor), "/")
	if path == "/" {
		return root, nil
	}
	defer func() { _ = root.Close() }()
	return openBeneath(int(root.Fd()), strings.TrimPrefix(path, "/"))
}

// emptyLike makes an empty directory with the mode and owner of another, which is
// mounted nowhere yet.
func emptyLike(source *os.File) (*os.File, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(source.Fd()), &stat); err != nil {
		return nil, err
	}
	return newMount("tmpfs", 0, [][2]string{
		{"source", "holdfast"}, {"mode", strconv.FormatUint(uint64(stat.Mode&0o7777), 8)},
		{"uid", strconv.FormatUint(uint64(stat.Uid), 10)}, {"gid", strconv.FormatUint(uint64(stat.Gid), 10)},
	})
}

// newMount makes a filesystem that is mounted nowhere yet (fsopen(2), fsmount(2)).
// An option without a value is a flag.
func newMount(kind string, attributes int, options [][2]string) (*os.File, error) {
	wrap := func(err error) error { return fmt.Errorf("make a %s: %w", kind, err) }
	filesystem, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, wrap(err)
	}
	defer func() { _ = unix.Close(filesystem) }()
	for _, option := range options {
		set := unix.FsconfigSetString
		if option[1] == "" {
			set = func(fd int, key, _ string) error { return unix.FsconfigSetFlag(fd, key) }
		}
		if err := set(filesystem, option[0], option[1]); err != nil {
			return nil, wrap(fmt.Errorf("%s=%s: %w", option[0], option[1], err))
		}
	}
	if err := unix.FsconfigCreate(filesystem); err != nil {
		return nil, wrap(err)
	}
	mount, err := unix.Fsmount(filesystem, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return nil, wrap(err)
	}
	return os.NewFile(uintptr(mount), kind), nil
}

// attach mounts a detached tree at an open file or directory.
func attach(mount, at *os.File) error {
	return unix.MoveMount(int(mount.Fd()), "", int(at.Fd()), "",
		unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

func entriesOf(directory *os.File, path string) ([]fs.DirEntry, error) {
	descriptor, err := unix.Openat(int(directory.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	opened := os.NewFile(uintptr(descriptor), path)
	defer func() { _ = opened.Close() }()
	return opened.ReadDir(-1)
}

func (v view) mirrorEntry(source, mirror *os.File, path string, entry fs.DirEntry) error {
	from, to, name := int(source.Fd()), int(mirror.Fd()), entry.Name()
	switch {
	case entry.Type()&fs.ModeSymlink != 0:
		link, err := readLink(from, name)
		if err != nil {
			return err
		}
		return unix.Symlinkat(link, to, name)
	case path == "/proc":
		return v.mountProc(to, name)
	case v.confined && path == "/dev":
		return v.mountDevices(to, name)
	case v.confined && path == "/dev/ptmx":
		return unix.Symlinkat("pts/ptmx", to, name)
	case v.confined && path == "/dev/pts":
		return mountTerminals(to, name)
	}
	if err := makePoint(to, name, !entry.IsDir()); err != nil {
		return err
	}
	tree, err := unix.OpenTree(from, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return err
	}
	copied := os.NewFile(uintptr(tree), path)
	defer func() { _ = copied.Close() }()
	var attributes uint64
	if !within(path, "/dev") {
		if v.readOnly || v.confined && path == "/sys" {
			attributes |= unix.MOUNT_ATTR_RDONLY
		}
		if v.confined {
			attributes |= unix.MOUNT_ATTR_NODEV
		}
	}
	if attributes != 0 {
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attributes}); err != nil {
			return err
		}
	}
	return attachAt(copied, to, name)
}

func attachAt(mount *os.File, directory int, name string) error {
	point, err := openBeneath(directory, name)
	if err != nil {
		return err
	}
	defer func() { _ = point.Close() }()
	return attach(mount, point)
}

func readLink(directory int, name string) (string, error) {
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(directory, name, buffer)
	if err != nil {
		return "", err
	}
	return string(buffer[:n]), nil
}
