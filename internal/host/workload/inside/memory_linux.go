package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// makeMemory makes a filesystem in memory that is mounted nowhere yet, with the
// files, and makes it read-only. It ends with the container's mount namespace.
func makeMemory(files []File) (int, error) {
	mount, err := newMemory()
	if err != nil {
		return -1, err
	}
	defer func() { _ = mount.Close() }()
	for _, file := range files {
		if err := writeBelow(int(mount.Fd()), file); err != nil {
			return -1, fmt.Errorf("file %s: %w", file.Path, err)
		}
	}
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(int(mount.Fd()), "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		return -1, fmt.Errorf("make the filesystem in memory read-only: %w", err)
	}
	return unix.FcntlInt(mount.Fd(), unix.F_DUPFD_CLOEXEC, 0)
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
