package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openMemory makes a mount in memory; with a SubPath, it is the file or directory that
// is there. The kernel copies such a part only of what is mounted somewhere (before Linux
// 6.15), which scratch is for.
func openMemory(mount Mount, scratch string) (int, error) {
	whole, err := makeMemory(mount.Files)
	if err != nil {
		return -1, err
	}
	defer func() { _ = whole.Close() }()
	if mount.SubPath == "" {
		return unix.FcntlInt(whole.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	}
	err = unix.MoveMount(int(whole.Fd()), "", unix.AT_FDCWD, scratch, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("mount the filesystem in memory at %s: %w", scratch, err)
	}
	part, err := unix.OpenTree(int(whole.Fd()), mount.SubPath, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		err = fmt.Errorf("subPath %s: %w", mount.SubPath, err)
	}
	return part, errors.Join(err, unix.Unmount(scratch, unix.MNT_DETACH))
}

// makeMemory makes a filesystem in memory that is mounted nowhere yet, with the
// files, and makes it read-only. It ends with the container's mount namespace.
func makeMemory(files []File) (*os.File, error) {
	mount, err := newMemory()
	if err != nil {
		return nil, err
	}
	if err := fillMemory(mount, files); err != nil {
		return nil, errors.Join(err, mount.Close())
	}
	return mount, nil
}

func fillMemory(mount *os.File, files []File) error {
	for _, file := range files {
		if err := writeBelow(int(mount.Fd()), file); err != nil {
			return fmt.Errorf("file %s: %w", file.Path, err)
		}
	}
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(int(mount.Fd()), "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		return fmt.Errorf("make the filesystem in memory read-only: %w", err)
	}
	return nil
}

// newMemory mounts a tmpfs that is never swapped out, if the kernel supports that
// (Linux 6.4).
func newMemory() (*os.File, error) {
	const attributes = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	options := [][2]string{{"source", "tmpfs"}, {"mode", "0755"}}
	mount, err := newMount("tmpfs", attributes, append(options, [2]string{"noswap", ""}))
	if errors.Is(err, unix.EINVAL) {
		return newMount("tmpfs", attributes, options)
	}
	return mount, err
}

// writeBelow writes a file that does not exist yet.
func writeBelow(root int, file File) error {
	if !filepath.IsLocal(file.Path) {
		return errors.New("the path leads out of the volume")
	}
	for i, c := range file.Path {
		if c != '/' {
			continue
		}
		if err := unix.Mkdirat(root, file.Path[:i], 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	fd, err := unix.Openat(root, file.Path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), file.Path)
	_, err = out.Write(file.Data)
	err = errors.Join(err, unix.Fchown(fd, 0, int(file.GID)), unix.Fchmod(fd, file.Mode))
	return errors.Join(err, out.Close())
}
