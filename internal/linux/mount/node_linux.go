package mount

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Node is the file, directory or device at a path, kept by a descriptor that neither
// follows symlinks nor wakes a device.
type Node struct {
	// MountRoot: the path is a mount point; MountID names the mount
	// (and is the first column of the mount table).
	MountRoot bool
	MountID   uint64
	// Dir, Block and Symlink are its type; all are false for a regular file.
	Dir, Block, Symlink bool
	// Device is the device number of a Block node.
	Device uint64

	path       string
	filesystem uint64 // st_dev
	size       uint64
	file       *os.File
	entry      *mountinfo.Info // set when the filesystem itself does not answer
}

func openNode(dir *os.File, base, path string) (*Node, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_BENEATH,
	}
	fd, err := openat2(int(dir.Fd()), base, &how)
	if errors.Is(err, unix.ELOOP) {
		how.Resolve = unix.RESOLVE_BENEATH
		fd, err = openat2(int(dir.Fd()), base, &how) // the link itself, to name it
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	node, err := inspect(file, path)
	if err != nil {
		node, err = inspectBroken(dir, file, path, err)
	}
	if err != nil {
		closeQuietly(file)
		return nil, err
	}
	return node, nil
}

// inspectBroken inspects a mount whose filesystem answers nothing any more (an
// xfs that shut down fails even statx(2)): the kernel's own records show what
// it is, and it must still be possible to unmount it. reason is returned when
// the path is not a mount of a block device.
func inspectBroken(dir, file *os.File, path string, reason error) (*Node, error) {
	parent, err := mountID(dir)
	if err != nil {
		return nil, errors.Join(reason, err)
	}
	id, err := mountID(file)
	if err != nil {
		return nil, errors.Join(reason, err)
	}
	table, err := Table()
	if err != nil {
		return nil, errors.Join(reason, err)
	}
	entry := ByID(table, id)
	if id == parent || entry == nil {
		return nil, reason
	}
	return &Node{MountRoot: true, MountID: id, Dir: true, path: path, file: file, entry: entry}, nil
}

// mountID reads the mount of a descriptor from proc_pid_fdinfo(5), for which
// the filesystem is not asked.
func mountID(file *os.File) (uint64, error) {
	name := "/proc/self/fdinfo/" + strconv.Itoa(int(file.Fd()))
	data, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, found := strings.CutPrefix(line, "mnt_id:"); found {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no mnt_id", name)
}

func inspect(file *os.File, path string) (*Node, error) {
	var stat unix.Statx_t
	const mask = unix.STATX_TYPE | unix.STATX_SIZE | unix.STATX_MNT_ID
	err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, mask, &stat)
	if err != nil {
		return nil, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	if stat.Mask&unix.STATX_MNT_ID == 0 || stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return nil, fmt.Errorf("statx %s reports nothing of mounts: Linux 5.12 or later is needed", path)
	}
	kind := stat.Mode & unix.S_IFMT
	return &Node{
		MountRoot:  stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
		MountID:    stat.Mnt_id,
		Dir:        kind == unix.S_IFDIR,
		Block:      kind == unix.S_IFBLK,
		Symlink:    kind == unix.S_IFLNK,
		Device:     unix.Mkdev(stat.Rdev_major, stat.Rdev_minor),
		path:       path,
		filesystem: unix.Mkdev(stat.Dev_major, stat.Dev_minor),
		size:       stat.Size,
		file:       file,
	}, nil
}

// Close closes the descriptor. A node of a mount keeps the mount busy
// until then.
func (n *Node) Close() error { return n.file.Close() }

func (n *Node) kind() string {
	switch {
	case n.Symlink:
		return "symbolic link"
	case n.Block:
		return "block device"
	case n.Dir:
		return "directory"
	}
	return "file"
}

// FilesystemDevice is the number of the block device that the node's
// filesystem is on. A btrfs has an anonymous st_dev; it is asked.
func (n *Node) FilesystemDevice() (uint64, error) {
	if n.entry != nil {
		return sourceNumber(n.entry)
	}
	if unix.Major(n.filesystem) != 0 || !n.Dir {
		return n.filesystem, nil
	}
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(n.file.Fd()), &stat); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: n.path, Err: err}
	}
	if uint64(stat.Type) != unix.BTRFS_SUPER_MAGIC {
		return n.filesystem, nil
	}
	dir, err := n.OpenDir()
	if err != nil {
		return 0, err
	}
	defer closeQuietly(dir)
	return btrfsDevice(dir)
}

// OpenDir opens the directory for reading and for ioctls.
func (n *Node) OpenDir() (*os.File, error) {
	fd, err := unix.Openat(int(n.file.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: n.path, Err: err}
	}
	return os.NewFile(uintptr(fd), n.path), nil
}

// ReadOnly reports whether writes through this node's mount are refused.
func (n *Node) ReadOnly() (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(n.file.Fd()), &stat); err != nil {
		return false, &os.PathError{Op: "statfs", Path: n.path, Err: err}
	}
	return stat.Flags&unix.ST_RDONLY != 0, nil
}

// The requests of btrfs that are needed (linux/btrfs.h): _IOR(0x94, 31, 1024
// bytes) and _IOWR(0x94, 30, 4096 bytes).
const (
	btrfsFSInfo  = 0x8400941f
	btrfsDevInfo = 0xd000941e
)

type btrfsFSInfoArgs struct {
	maxID, devices uint64
	_              [1024 - 16]byte
}

type btrfsDevInfoArgs struct {
	devid uint64
	_     [4096 - 8 - 1024]byte
	path  [1024]byte
}

// btrfsDevice finds the one device of a btrfs; a volume never has two.
func btrfsDevice(dir *os.File) (uint64, error) {
	var info btrfsFSInfoArgs
	if err := ioctl(dir, btrfsFSInfo, unsafe.Pointer(&info)); err != nil {
		return 0, fmt.Errorf("ask %s for its devices: %w", dir.Name(), err)
	}
	if info.devices != 1 {
		return 0, fmt.Errorf("%s is on %d devices; a volume has one", dir.Name(), info.devices)
	}
	device := btrfsDevInfoArgs{devid: info.maxID}
	if err := ioctl(dir, btrfsDevInfo, unsafe.Pointer(&device)); err != nil {
		return 0, fmt.Errorf("ask %s for its device: %w", dir.Name(), err)
	}
	path, _, _ := bytes.Cut(device.path[:], []byte{0})
	var stat unix.Stat_t
	if err := unix.Stat(string(path), &stat); err != nil {
		return 0, fmt.Errorf("device %s of %s: %w", path, dir.Name(), err)
	}
	return uint64(stat.Rdev), nil
}

// FilesystemType is the type of the filesystem that the node is on, as far as
// volumes have it: ext4, xfs, btrfs, or its magic number.
func (n *Node) FilesystemType() (string, error) {
	if n.entry != nil {
		return n.entry.FSType, nil
	}
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(n.file.Fd()), &stat); err != nil {
		return "", &os.PathError{Op: "statfs", Path: n.path, Err: err}
	}
	switch uint64(stat.Type) {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4", nil
	case unix.XFS_SUPER_MAGIC:
		return "xfs", nil
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs", nil
	}
	return fmt.Sprintf("%#x", uint64(stat.Type)), nil
}

// File is the descriptor, of O_PATH; it is the node's.
func (n *Node) File() *os.File { return n.file }

func ioctl(file *os.File, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
