package local

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// classify adds to errors of the kernel the sentinel that the caller acts on.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return sentinel(backend.ErrNoSpace, err)
	case errors.Is(err, unix.EFBIG):
		return sentinel(backend.ErrOutOfRange, err)
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EIO):
		return sentinel(backend.ErrUnavailable, err)
	}
	return err
}

func sentinel(kind, err error) error {
	if errors.Is(err, kind) {
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

func descriptor(f *os.File) int { return int(f.Fd()) }

// tryFlock takes flock(2) without waiting; ErrBusy when another descriptor has it.
func tryFlock(f *os.File, how int) error {
	err := unix.Flock(descriptor(f), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%w: %s is locked", backend.ErrBusy, f.Name())
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}

// room is the room on the pool's filesystem (statfs(2)), in bytes.
type room struct {
	total, available int64
	readOnly         bool
	magic            int64
}

func roomOf(f *os.File) (room, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(descriptor(f), &stat); err != nil {
		return room{}, fmt.Errorf("statfs %s: %w", f.Name(), err)
	}
	unit := int64(stat.Frsize)
	return room{
		total: int64(stat.Blocks) * unit, available: int64(stat.Bavail) * unit,
		readOnly: stat.Flags&unix.ST_RDONLY != 0, magic: int64(stat.Type),
	}, nil
}

func statOf(f *os.File) (unix.Stat_t, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(descriptor(f), &stat); err != nil {
		return stat, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	return stat, nil
}

func fingerprintOf(f *os.File) (fingerprint, error) {
	stat, err := statOf(f)
	return fingerprint{Inode: stat.Ino, Size: stat.Size, Modified: stat.Mtim.Nano(), Changed: stat.Ctim.Nano()}, err
}

// allocated is how many bytes of the disk a file occupies, shared ones included.
func allocated(f *os.File) (int64, error) {
	stat, err := statOf(f)
	return stat.Blocks * 512, err // st_blocks has this unit on every filesystem (stat(2))
}

// allocate allocates the missing blocks of a range. The file's size stays.
func allocate(f *os.File, offset, length int64) error {
	if err := unix.Fallocate(descriptor(f), unix.FALLOC_FL_KEEP_SIZE, offset, length); err != nil {
		return fmt.Errorf("allocate %d bytes of %s at offset %d: %w", length, f.Name(), offset, err)
	}
	return nil
}

// clone makes target share all blocks of source (ioctl_ficlone(2)).
func clone(target, source *os.File) error {
	if err := unix.IoctlFileClone(descriptor(target), descriptor(source)); err != nil {
		return fmt.Errorf("clone %s to %s: %w", source.Name(), target.Name(), err)
	}
	return nil
}

// cannotClone reports from an error of clone whether the filesystem lacks reflink
// rather than failed.
func cannotClone(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.ENOSYS)
}

const noCopyOnWrite = 0x00800000 // FS_NOCOW_FL (linux/fs.h)

// disableCopyOnWrite marks an empty file on btrfs so that its blocks are
// written in place: otherwise every write, to allocated blocks too, takes new
// space, which would break the promise of thick volumes, and direct I/O is
// turned into buffered I/O for the sake of checksums (Linux 6.14).
func disableCopyOnWrite(f *os.File) error {
	flags, err := unix.IoctlGetInt(descriptor(f), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(descriptor(f), unix.FS_IOC_SETFLAGS, flags|noCopyOnWrite)
	}
	if err != nil {
		return fmt.Errorf("turn copy-on-write off for %s: %w", f.Name(), err)
	}
	return nil
}

// punch frees a range (fallocate(2), FALLOC_FL_PUNCH_HOLE).
func punch(f *os.File, offset, length int64) error {
	if err := unix.Fallocate(descriptor(f), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, length); err != nil {
		return fmt.Errorf("free %d bytes of %s: %w", length, f.Name(), err)
	}
	return nil
}
