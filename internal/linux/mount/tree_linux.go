package mount

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Tree is a mount that is not attached to a path yet. Closing it, on any path, makes an
// unattached one vanish; an attached one stays.
type Tree struct {
	file *os.File
	dir  bool // a directory is mounted; otherwise a file
}

// Filesystem describes a mount to make.
type Filesystem struct {
	Type   string
	Device string // the node of the device
	Number uint64 // the device's number, to verify
	// Defaults are options that the request did not ask for; they go first.
	Defaults []Option
	Flags    Flags
}

// Mount mounts a filesystem without attaching it anywhere, and verifies that
// it is on the device. ErrInvalid, with the kernel's words, for an option that
// the filesystem does not know; ErrDataLoss when the kernel finds it damaged.
func Mount(f Filesystem) (*Tree, error) {
	fd, err := unix.Fsopen(f.Type, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w: the kernel has no filesystem %s: %w",
			f.Device, backend.ErrPrecondition, f.Type, err)
	}
	fsContext := os.NewFile(uintptr(fd), f.Type)
	defer closeQuietly(fsContext)
	if err := configure(fsContext, f); err != nil {
		return nil, err
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return nil, explainCreate(fsContext, f, err)
	}
	fd, err = unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, int(attributeBits(f.Flags.Attributes)))
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", f.Device, err)
	}
	tree := &Tree{file: os.NewFile(uintptr(fd), f.Device), dir: true}
	if err := tree.verify(f.Number); err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	return tree, nil
}

func configure(fsContext *os.File, f Filesystem) error {
	fd := int(fsContext.Fd())
	if err := unix.FsconfigSetString(fd, "source", f.Device); err != nil {
		return fmt.Errorf("mount %s: source: %w%s", f.Device, err, messages(fsContext))
	}
	if f.Flags.ReadOnly() {
		if err := unix.FsconfigSetFlag(fd, "ro"); err != nil {
			return fmt.Errorf("mount %s: ro: %w%s", f.Device, err, messages(fsContext))
		}
	}
	for _, option := range slices.Concat(f.Defaults, f.Flags.Options) {
		if err := set(fd, option); err != nil {
			said := messages(fsContext) + explainLabel(option, err)
			return fmt.Errorf("%w: mount flag %q for %s: %w%s", backend.ErrInvalid, option, f.Type, err, said)
		}
	}
	return nil
}

// explainLabel says why the kernel refused a label, for which it has no message.
func explainLabel(option Option, err error) string {
	if option.Key == contextOption && errors.Is(err, unix.EINVAL) && LabelsFiles() {
		return ": the SELinux policy of this machine does not know this label: its user, role, type or level"
	}
	return ""
}

func set(fd int, option Option) error {
	if option.HasValue {
		return unix.FsconfigSetString(fd, option.Key, option.Value)
	}
	return unix.FsconfigSetFlag(fd, option.Key)
}

// explainCreate sorts the kernel's refusal to mount.
func explainCreate(fsContext *os.File, f Filesystem, err error) error {
	said := messages(fsContext)
	class := backend.ErrPrecondition
	switch {
	case errors.Is(err, unix.EUCLEAN), errors.Is(err, unix.EBADMSG): // EFSCORRUPTED, EFSBADCRC
		class = backend.ErrDataLoss
	case errors.Is(err, unix.EBUSY):
		class = backend.ErrInUse
	case errors.Is(err, unix.EIO), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENOMEM):
		class = backend.ErrUnavailable
	case errors.Is(err, unix.EINVAL) && len(f.Flags.Options) > 0:
		class = backend.ErrInvalid
	}
	if errors.Is(err, unix.EEXIST) && f.Type == "btrfs" {
		said += ": its original or another clone of it is mounted, which btrfs allows from Linux 6.7 on"
	}
	if errors.Is(err, unix.EINVAL) && f.Type == "btrfs" && f.Flags.Context() != "" && LabelsFiles() {
		// Until btrfs reads its options by the new calls (6.8), it makes its superblock without
		// the label that SELinux has taken from them, and SELinux then finds two.
		said += ": Linux 6.1, and others before 6.8, mount no btrfs with an SELinux label; " +
			"use another filesystem, or seLinuxChangePolicy: Recursive"
	}
	return fmt.Errorf("mount %s as %s with options %v: %w: %w%s; see the kernel log (dmesg)",
		f.Device, f.Type, slices.Concat(f.Defaults, f.Flags.Options), class, err, said)
}

// messages reads the kernel's log of the context: lines that start
// with e, w or i for their gravity (fs/fsopen.c).
func messages(fsContext *os.File) string {
	var said strings.Builder
	buffer := make([]byte, 1024)
	for range 16 {
		n, err := unix.Read(int(fsContext.Fd()), buffer)
		if err != nil || n <= 0 {
			break
		}
		line := strings.TrimSpace(string(buffer[:n]))
		if rest, ok := strings.CutPrefix(line, "e "); ok {
			said.WriteString(": " + rest)
		}
	}
	return said.String()
}

// attributeBits translates the names of package flags to those of
// mount_setattr(2).
func attributeBits(names []string) uint64 {
	bits := map[string]uint64{
		"ro": unix.MOUNT_ATTR_RDONLY, "nosuid": unix.MOUNT_ATTR_NOSUID, "nodev": unix.MOUNT_ATTR_NODEV,
		"noexec": unix.MOUNT_ATTR_NOEXEC, "nosymfollow": unix.MOUNT_ATTR_NOSYMFOLLOW,
		"nodiratime": unix.MOUNT_ATTR_NODIRATIME, "noatime": unix.MOUNT_ATTR_NOATIME,
		"strictatime": unix.MOUNT_ATTR_STRICTATIME,
	}
	var all uint64
	for _, name := range names {
		all |= bits[name]
	}
	return all
}

// Bind makes a second mount of the node. It has the attributes of
// the first and those named (see Flags.Attributes).
func (n *Node) Bind(attributes ...string) (*Tree, error) {
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH
	fd, err := unix.OpenTree(int(n.file.Fd()), "", flags)
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", n.path, err)
	}
	tree := &Tree{file: os.NewFile(uintptr(fd), n.path), dir: n.Dir}
	attr := unix.MountAttr{Attr_set: attributeBits(attributes)}
	if attr.Attr_set == 0 {
		return tree, nil
	}
	if attr.Attr_set&unix.MOUNT_ATTR__ATIME != 0 {
		attr.Attr_clr = unix.MOUNT_ATTR__ATIME // the access time modes are one field
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return nil, errors.Join(fmt.Errorf("bind %s %v: %w", n.path, attributes, err), tree.Close())
	}
	return tree, nil
}

// BindDevice makes a mount of a block device's node, verified by its number,
// to be attached to a file.
func BindDevice(path string, number uint64) (*Tree, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer closeQuietly(file)
	node, err := inspect(file, path)
	if err != nil {
		return nil, err
	}
	if !node.Block || node.Device != number {
		return nil, fmt.Errorf("bind %s: %w: it is a %s with number %d:%d; want device %d:%d", path, backend.ErrPrecondition,
			node.kind(), unix.Major(node.Device), unix.Minor(node.Device), unix.Major(number), unix.Minor(number))
	}
	return node.Bind()
}

// OpenDir opens the root of the mounted filesystem.
func (t *Tree) OpenDir() (*os.File, error) {
	node := &Node{file: t.file, path: t.file.Name()}
	return node.OpenDir()
}

// Close closes the descriptor.
func (t *Tree) Close() error { return t.file.Close() }

// verify compares the filesystem's device with the requested one.
func (t *Tree) verify(number uint64) error {
	node, err := inspect(t.file, t.file.Name())
	if err != nil {
		return err
	}
	got, err := node.FilesystemDevice()
	if err != nil {
		return err
	}
	if got != number {
		return fmt.Errorf("mount %s: the filesystem is on device %d:%d; want %d:%d", t.file.Name(),
			unix.Major(got), unix.Minor(got), unix.Major(number), unix.Minor(number))
	}
	return nil
}

// detach takes an attached mount away again, from the path it is at now. It is lazy
// because our own descriptor keeps it busy; no other process has had time to.
func (t *Tree) detach() error {
	if err := unix.Unmount(descriptor(t.file), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount %s again: %w", t.file.Name(), err)
	}
	return nil
}

// Available reports whether this kernel and this process's privilege suffice for the
// package. It mounts nothing.
func Available() error {
	if _, err := Table(); err != nil {
		return err
	}
	dir, err := openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return fmt.Errorf("openat2: %w; Linux 5.12 or later is needed", err)
	}
	root := os.NewFile(uintptr(dir), "/")
	defer closeQuietly(root)
	if _, err := inspect(root, "/"); err != nil {
		return err
	}
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("fsopen: %w; mounting needs CAP_SYS_ADMIN", err)
	}
	return unix.Close(fd)
}
