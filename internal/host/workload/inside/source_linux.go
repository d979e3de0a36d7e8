package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// openSources takes a detached copy of each mount before the root changes. In a
// confined container, a device node in a volume opens nothing: the author of the volume, or of
// the image that it is a copy of, may have made one of any disk.
func openSources(container Container) ([]int, error) {
	trees := make([]int, len(container.Mounts))
	for i, mount := range container.Mounts {
		tree, err := openSource(mount, container)
		if err != nil {
			return nil, fmt.Errorf("mount path %s: %w", mount.Target, err)
		}
		trees[i] = tree
	}
	return trees, nil
}

func openSource(mount Mount, container Container) (int, error) {
	if mount.Memory {
		return openMemory(mount, container.Scratch)
	}
	source, err := openSubPath(mount)
	if err != nil {
		return -1, err
	}
	defer func() { _ = source.Close() }()
	tree, err := unix.OpenTree(int(source.Fd()), "",
		unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("take %s: %w", mount.Source, err)
	}
	attributes := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if mount.ReadOnly {
		attributes.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if container.confined() && !mount.Device {
		attributes.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attributes); err != nil {
		return -1, errors.Join(fmt.Errorf("set the attributes of %s: %w", mount.Source, err), unix.Close(tree))
	}
	return tree, nil
}

// openSubPath opens the source, or the directory below it. What lies in a
// volume may be written by any user: os.Root keeps every step inside.
func openSubPath(mount Mount) (*os.File, error) {
	if mount.SubPath == "" {
		fd, err := unix.Open(mount.Source, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", mount.Source, err)
		}
		return os.NewFile(uintptr(fd), mount.Source), nil
	}
	root, err := os.OpenRoot(mount.Source)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	if err := root.MkdirAll(mount.SubPath, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("subPath %s: %w", mount.SubPath, err)
	}
	// Of a pipe, an open that is not for a directory would wait for its writer.
	file, err := root.OpenFile(mount.SubPath, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("subPath %s: %w", mount.SubPath, err)
	}
	return file, nil
}

// attach moves a detached copy to its path in the view.
func (v view) attach(t target, tree int) error {
	defer func() { _ = unix.Close(tree) }()
	point, err := v.mountPoint(t)
	if err != nil {
		return fmt.Errorf("mount path %s: %w", t.Target, err)
	}
	defer func() { _ = point.Close() }()
	var stat unix.Stat_t
	if err := unix.Fstat(int(point.Fd()), &stat); err != nil {
		return fmt.Errorf("mount path %s: %w", t.Target, err)
	}
	if isDirectory := stat.Mode&unix.S_IFMT == unix.S_IFDIR; isDirectory == t.isFile() {
		return fmt.Errorf("mount path %s: exists on this machine and is of another kind than the volume", t.Target)
	}
	err = unix.MoveMount(tree, "", int(point.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("mount path %s: %w", t.Target, err)
	}
	return nil
}

// mountPoint opens the mount point of a mount. It makes it if it is missing in a
// mirror, or inside a volume that is mounted already. It follows no symbolic link: the
// machine's own were resolved before, and one inside a volume may lead to a path of
// the machine, where nothing may be made.
func (v view) mountPoint(t target) (*os.File, error) {
	names := strings.Split(strings.Trim(t.path, "/"), "/")
	if names[0] == "" {
		return nil, errors.New("the root itself cannot be a mount path")
	}
	at, err := v.open()
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		last := i == len(names)-1
		next, err := stepInto(at, name, t.isFile() && last)
		if errors.Is(err, unix.ELOOP) {
			err = errors.New("a symbolic link in a volume is in the path")
		}
		_ = at.Close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// stepInto opens an entry of a directory, and makes it if it is missing: a
// directory, or the file that a device or a file appears at.
func stepInto(directory *os.File, name string, file bool) (*os.File, error) {
	at := int(directory.Fd())
	entry, err := openBeneath(at, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return entry, err
	}
	if err := makePoint(at, name, file); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, &fs.PathError{Op: "make", Path: filepath.Join(directory.Name(), name), Err: err}
	}
	return openBeneath(at, name)
}

func makePoint(at int, name string, file bool) error {
	if !file {
		return unix.Mkdirat(at, name, 0o755)
	}
	return unix.Mknodat(at, name, unix.S_IFREG|0o644, 0)
}

func openBeneath(at int, name string) (*os.File, error) {
	how := unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		descriptor, err := unix.Openat2(at, name, &how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // a rename on the way (openat2(2))
		case err != nil:
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		default:
			return os.NewFile(uintptr(descriptor), name), nil
		}
	}
}
