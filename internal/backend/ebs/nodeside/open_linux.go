package nodeside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
)

// errChanged reports that a disk changed while it was opened, or is not ready yet. The
// caller finds it again.
var errChanged = errors.New("the device changed while it was opened")

// open opens a target, and then confirms by sysfs that its name still means the volume.
// From then on, the descriptor keeps the kernel from assigning the number to another disk
// (bdev_free_inode, block/bdev.c).
func (n *Node) open(t target) (*os.File, error) {
	file, err := openNode(filepath.Join(n.options.DevRoot, t.name), t.number)
	if err != nil {
		return nil, err
	}
	if err := n.confirm(t, file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// openNode opens the node of a device, never through a symbolic link, and compares its
// number with that of sysfs. errChanged also if the node or its disk does not exist (yet).
func openNode(path string, number uint64) (*os.File, error) {
	if err := checkNode(path, number); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	switch {
	case gone(err):
		return nil, fmt.Errorf("%w: %w", errChanged, err)
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("open %s: %w: it has become a symbolic link", path, backend.ErrPrecondition)
	case err != nil:
		return nil, err
	}
	opened, err := blockdev.Number(file)
	if err == nil && opened != number {
		err = fmt.Errorf("open %s: %w", path, errChanged)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// checkNode inspects a node without opening it, because to open a file that is not a block
// device can have effects.
func checkNode(path string, number uint64) error {
	var stat unix.Stat_t
	err := unix.Lstat(path, &stat)
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("node %s: %w: %w", path, errChanged, err)
	case err != nil:
		return fmt.Errorf("node %s: %w", path, err)
	case stat.Mode&unix.S_IFMT == unix.S_IFLNK:
		return fmt.Errorf("node %s: %w: it is a symbolic link, not a device node", path, backend.ErrPrecondition)
	case stat.Mode&unix.S_IFMT != unix.S_IFBLK:
		return fmt.Errorf("node %s: %w: it is not a block device", path, backend.ErrPrecondition)
	case uint64(stat.Rdev) != number:
		return fmt.Errorf("node %s: %w: it is the node of %d:%d and the disk is %d:%d; if that does not change, remove it",
			path, errChanged, unix.Major(uint64(stat.Rdev)), unix.Minor(uint64(stat.Rdev)), unix.Major(number), unix.Minor(number))
	}
	return nil
}

// confirm compares an opened target with sysfs.
func (n *Node) confirm(t target, file *os.File) error {
	unchanged, err := n.unchanged(t)
	if err != nil {
		return err
	}
	if !unchanged {
		return fmt.Errorf("%s: %w", t.name, errChanged)
	}
	expected, err := n.sys.attribute(t.disk.name, "diskseq")
	if err != nil || expected == "" {
		return err
	}
	sequence, err := diskSequence(file)
	if err != nil {
		return err
	}
	if sequence != 0 && fmt.Sprint(sequence) != expected {
		return fmt.Errorf("%s: %w: disk sequence %d, not %s", t.name, errChanged, sequence, expected)
	}
	return nil
}

// diskSequence is the number that the kernel assigns to each appearance of a disk, unique
// within a boot (BLKGETDISKSEQ, Linux 5.15); 0 if the kernel has none.
func diskSequence(file *os.File) (uint64, error) {
	sequence, err := ioctlUint64(file, unix.BLKGETDISKSEQ)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the disk sequence of %s: %w", file.Name(), err)
	}
	return sequence, nil
}
