package binds

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Above a target, another user may be allowed to write, and to lead its path
// elsewhere at any time. So it is opened once, without following links, and every
// check and step uses the descriptor.

// openTarget opens the directory that a volume is to be bound at, or the root of the
// mount at it.
func openTarget(path string) (*os.File, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return nil, fmt.Errorf("bind %q: it is not an absolute path of a directory", path)
	}
	target, err := openWithoutLinks(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("bind %s: the directory does not exist: make it first", path)
	case errors.Is(err, unix.ELOOP):
		resolved, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, fmt.Errorf("bind %s: the path leads over a symbolic link: %w", path, err)
		}
		return nil, fmt.Errorf("bind %s: the path leads over a symbolic link to %s: name that", path, resolved)
	case errors.Is(err, unix.ENOTDIR):
		return nil, fmt.Errorf("bind %s: it is not a directory", path)
	case err != nil:
		return nil, fmt.Errorf("bind %s: %w", path, err)
	}
	return target, nil
}

func openWithoutLinks(path string) (*os.File, error) {
	for {
		descriptor, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) { // a rename on the way (openat2(2))
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(descriptor), path), nil
	}
}

// checkEmpty refuses a directory with entries, because the mount would hide them.
func checkEmpty(target *os.File, path string) error {
	descriptor, err := unix.Openat(int(target.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bind %s: %w", path, err)
	}
	directory := os.NewFile(uintptr(descriptor), path)
	defer func() { _ = directory.Close() }()
	entries, err := directory.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("bind %s: %w", path, err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("bind %s: the directory is not empty: the volume would hide %q", path, entries[0].Name())
	}
	return nil
}

// mount shows a copy of the source's mount at the target. It has the flags of
// the source, and is read-only, if it is to be, before it is visible.
func mount(bind Bind, target *os.File) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, bind.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("bind %s: take %s: %w", bind.Target, bind.Source, err)
	}
	copied := os.NewFile(uintptr(tree), bind.Source)
	defer func() { _ = copied.Close() }()
	if err := setReadOnly(copied, bind); err != nil {
		return err
	}
	err = unix.MoveMount(tree, "", int(target.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("bind %s at %s: %w", bind.Source, bind.Target, err)
	}
	return nil
}

// setReadOnly makes a mount read-only if the bind is; it never makes one writable.
func setReadOnly(mounted *os.File, bind Bind) error {
	if !bind.ReadOnly {
		return nil
	}
	if err := unix.MountSetattr(int(mounted.Fd()), "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("bind %s read-only: %w", bind.Target, err)
	}
	return nil
}

// mountedAt is the mount that is seen at a path, nil if the path is not a mount point.
func mountedAt(path string) (*mountinfo.Info, error) {
	opened, err := openWithoutLinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspect the mount at %s: %w", path, err)
	}
	defer func() { _ = opened.Close() }()
	return mountOf(opened, "")
}

// mountOf is the mount whose root an open file is, or a name in an open
// directory; nil if that is not a mount point.
func mountOf(opened *os.File, name string) (*mountinfo.Info, error) {
	var ok unix.Statx_t
	// A server that does not answer is not asked.
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err := unix.Statx(int(opened.Fd()), name, flags, unix.STATX_MNT_ID, &ok)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspect the mount at %s: %w", filepath.Join(opened.Name(), name), err)
	}
	if ok.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return nil, nil
	}
	found, err := mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) {
		same := uint64(info.ID) == ok.Mnt_id //nolint:gosec // an identifier of the kernel's
		return !same, same
	})
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("inspect the mount at %s: %w", filepath.Join(opened.Name(), name),
			errors.Join(err, errors.New("the list of mounts does not have it")))
	}
	return found[0], nil
}

// remove unmounts a recorded mount, if it is still there.
func (r record) remove() error {
	// The directory above is opened, not the mount itself, which would be busy.
	above, err := openWithoutLinks(filepath.Dir(r.Target))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil // the path leads elsewhere now
	}
	if err != nil {
		return err
	}
	defer func() { _ = above.Close() }()
	name := filepath.Base(r.Target)
	there, err := mountOf(above, name)
	if err != nil || there == nil {
		return err
	}
	if !r.ok(there) {
		return r.isUnder(there)
	}
	err = unix.Unmount(fmt.Sprintf("/proc/self/fd/%d/%s", above.Fd(), name), unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = fmt.Errorf("%w: a process has files open there, or its directory", err)
	}
	return err
}

// isUnder returns an error if another mount covers the recorded one: it would stay
// unnoticed.
func (r record) isUnder(top *mountinfo.Info) error {
	under, err := mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) {
		return info.Mountpoint != top.Mountpoint || !r.ok(info), false
	})
	if err == nil && len(under) > 0 {
		err = fmt.Errorf("something else is mounted over it (%s, %s): unmount that first", top.FSType, top.Source)
	}
	return err
}
