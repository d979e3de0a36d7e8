package blockdev

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

const (
	loopControl  = "/dev/loop-control"
	sysBlock     = "/sys/block"
	sysfsSector  = 512 // sizes of the block layer are in these units
	attachTries  = 64
	attachPause  = 2 * time.Millisecond
	releaseTries = 50
	releasePause = 4 * time.Millisecond
)

// AttachLoop attaches the file to a free loop device and keeps it open. What
// the kernel did is read back: backing file, size, access. Direct I/O may have
// been refused, which Loop.DirectIO reports, and discard too, if the file's
// filesystem cannot punch holes. ErrUnavailable when the machine has no loop
// devices or none stayed free long enough to be taken.
func AttachLoop(ctx context.Context, c LoopConfig) (*Loop, error) {
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w: %w; load the kernel module loop", c.Path, backend.ErrUnavailable, err)
	}
	defer closeQuietly(control)
	for try := range attachTries {
		loop, err := attachFree(control, c)
		// Callers that ask for a free device at the same time get the same number;
		// the slower gets EBUSY, or ENXIO when the device was removed meanwhile.
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENXIO) {
			return loop, err
		}
		pause := time.Duration(rand.Int64N(int64(attachPause) * int64(try/8+1)))
		if err := concurrency.Sleep(ctx, pause); err != nil {
			return nil, fmt.Errorf("attach %s: %w", c.Path, err)
		}
	}
	return nil, fmt.Errorf("attach %s: %w: %d free loop devices in a row were taken by others",
		c.Path, backend.ErrUnavailable, attachTries)
}

func attachFree(control *os.File, c LoopConfig) (*Loop, error) {
	index, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, fmt.Errorf("attach %s: find a free loop device: %w", c.Path, err)
	}
	device, err := openLoop(index, c.ReadOnly)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", c.Path, err)
	}
	if err := configure(device, c); err != nil {
		return nil, errors.Join(fmt.Errorf("attach %s to %s: %w", c.Path, device.Name(), err), device.Close())
	}
	// The user of the device before may have left it read-only.
	if err := makeWritable(device); err != nil {
		return nil, errors.Join(fmt.Errorf("attach %s to %s: %w", c.Path, device.Name(), err),
			freeLoop(device), device.Close())
	}
	loop, err := verifyAttached(device, index, c)
	if err != nil {
		err = errors.Join(err, freeLoop(device), device.Close())
		if errors.Is(err, errDiscardStuck) {
			err = errors.Join(unix.EBUSY, renew(control, index))
		}
		return nil, err
	}
	return loop, nil
}

func configure(device *os.File, c LoopConfig) error {
	config := unix.LoopConfig{Fd: uint32(c.File.Fd()), Size: uint32(c.SectorSize)}
	config.Info.Flags = loopFlags(c)
	copy(config.Info.File_name[:len(config.Info.File_name)-1], c.Path)
	return unix.IoctlLoopConfigure(int(device.Fd()), &config)
}

func loopFlags(c LoopConfig) uint32 {
	var flags uint32
	if c.ReadOnly {
		flags |= unix.LO_FLAGS_READ_ONLY
	}
	if c.AutoClear {
		flags |= unix.LO_FLAGS_AUTOCLEAR
	}
	if c.DirectIO {
		flags |= unix.LO_FLAGS_DIRECT_IO
	}
	return flags
}

// verifyAttached reads back what LOOP_CONFIGURE did. Kernels before 5.8 ignore
// fields they do not know, and others have turned direct I/O off silently.
func verifyAttached(device *os.File, index int, c LoopConfig) (*Loop, error) {
	loop := &Loop{Index: index, Path: device.Name(), file: device}
	if err := loop.read(); err != nil {
		return nil, err
	}
	want, err := statFile(c.File)
	if err != nil {
		return nil, err
	}
	size := want.Size
	if want.Mode&unix.S_IFMT == unix.S_IFBLK {
		if size, err = deviceSize(c.File); err != nil {
			return nil, err
		}
	}
	switch {
	case loop.device != uint64(want.Dev) || loop.inode != want.Ino:
		return nil, fmt.Errorf("attach %s: %s is backed by another file", c.Path, loop.Path)
	case loop.Size != size&^(sysfsSector-1):
		return nil, fmt.Errorf("attach %s: %s has %d bytes, its file %d", c.Path, loop.Path, loop.Size, size)
	case loop.ReadOnly != c.ReadOnly:
		return nil, fmt.Errorf("attach %s: %s has read-only = %t", c.Path, loop.Path, loop.ReadOnly)
	case c.SectorSize != 0 && loop.SectorSize != c.SectorSize:
		return nil, fmt.Errorf("attach %s: %s has sectors of %d bytes; want %d",
			c.Path, loop.Path, loop.SectorSize, c.SectorSize)
	}
	return loop, loop.applyDiscard(c.Discard)
}

// openLoop opens /dev/loopN, making the node when it is missing: a container's
// /dev does not follow the kernel's (util-linux issue 3197).
func openLoop(index int, readOnly bool) (*os.File, error) {
	name := "loop" + strconv.Itoa(index)
	path := filepath.Join("/dev", name)
	flags := os.O_RDWR
	if readOnly {
		flags = os.O_RDONLY
	}
	number, err := sysfsNumber(name)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, flags, 0)
	if errors.Is(err, os.ErrNotExist) {
		if err := unix.Mknod(path, unix.S_IFBLK|0o660, int(number)); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("make node %s: %w", path, err)
		}
		file, err = os.OpenFile(path, flags, 0)
	}
	if err != nil {
		return nil, err
	}
	stat, err := statFile(file)
	if err == nil && (stat.Mode&unix.S_IFMT != unix.S_IFBLK || uint64(stat.Rdev) != number) {
		err = fmt.Errorf("%s is not the node of device %d:%d; remove it", path, unix.Major(number), unix.Minor(number))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// sysfsNumber reads the device number of a block device: "major:minor".
func sysfsNumber(name string) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(sysBlock, name, "dev"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		// Removed by LOOP_CTL_REMOVE, or just being added or removed.
		return 0, fmt.Errorf("%s: %w", name, unix.ENXIO)
	}
	if err != nil {
		return 0, err
	}
	major, minor, _ := strings.Cut(strings.TrimSpace(string(data)), ":")
	high, err := strconv.ParseUint(major, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("device number of %s: %w", name, err)
	}
	low, err := strconv.ParseUint(minor, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("device number of %s: %w", name, err)
	}
	return unix.Mkdev(uint32(high), uint32(low)), nil
}

// read fills the fields from the kernel; the device must be open.
func (l *Loop) read() error {
	fd := int(l.file.Fd())
	status, err := l.status(fd)
	if err != nil {
		return fmt.Errorf("read status of %s: %w", l.Path, err)
	}
	stat, err := statFile(l.file)
	if err != nil {
		return err
	}
	if l.Size, err = deviceSize(l.file); err != nil {
		return err
	}
	if l.SectorSize, err = unix.IoctlGetInt(fd, unix.BLKSSZGET); err != nil {
		return fmt.Errorf("read sector size of %s: %w", l.Path, err)
	}
	l.Number, l.device, l.inode = uint64(stat.Rdev), status.Device, status.Inode
	if l.ReadOnly, err = IsReadOnly(l.file); err != nil {
		return err
	}
	l.FileReadOnly = status.Flags&unix.LO_FLAGS_READ_ONLY != 0
	l.AutoClear = status.Flags&unix.LO_FLAGS_AUTOCLEAR != 0
	l.DirectIO = status.Flags&unix.LO_FLAGS_DIRECT_IO != 0
	l.BackingFile = l.attribute("loop/backing_file")
	limit := l.attribute("queue/discard_max_bytes")
	l.Discard = limit != "" && limit != "0"
	return nil
}

// status asks the kernel for the backing file and the flags of the device. The
// kernel asks the file in turn, which fails with its filesystem; the flags are in
// sysfs then, too.
func (l *Loop) status(fd int) (*unix.LoopInfo64, error) {
	status, err := unix.IoctlLoopGetStatus64(fd)
	l.unconfirmed = isFilesystemFailure(err)
	if !l.unconfirmed {
		return status, err
	}
	status = &unix.LoopInfo64{}
	for name, flag := range map[string]uint32{"ro": unix.LO_FLAGS_READ_ONLY, "loop/autoclear": unix.LO_FLAGS_AUTOCLEAR, "loop/dio": unix.LO_FLAGS_DIRECT_IO} {
		if l.attribute(name) == "1" {
			status.Flags |= flag
		}
	}
	return status, nil
}

// isFilesystemFailure reports whether an error is that of a filesystem that was
// shut down, or whose device failed.
func isFilesystemFailure(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.ESHUTDOWN) || errors.Is(err, unix.EUCLEAN) ||
		errors.Is(err, unix.ESTALE)
}

func (l *Loop) attribute(name string) string {
	data, err := os.ReadFile(filepath.Join(sysBlock, filepath.Base(l.Path), name))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(data), "\n")
}

// Close closes the device. One with AutoClear that no other process has open is
// gone when it returns.
func (l *Loop) Close() error {
	if l == nil || l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// Open opens a listed device, which keeps it attached, and
// reads it again. ErrNotFound when it is no longer backed by the same file.
func (l *Loop) Open() error {
	if l.file != nil {
		return nil
	}
	file, err := openLoop(l.Index, l.ReadOnly)
	if errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("open %s: %w: it was detached", l.Path, backend.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", l.Path, err)
	}
	now := &Loop{Index: l.Index, Path: l.Path, file: file}
	if err := now.read(); err != nil {
		if errors.Is(err, unix.ENXIO) {
			err = fmt.Errorf("open %s: %w: it was detached", l.Path, backend.ErrNotFound)
		}
		return errors.Join(err, file.Close())
	}
	if !now.sameFile(l) {
		return errors.Join(fmt.Errorf("open %s: %w: it was given another file", l.Path, backend.ErrNotFound), file.Close())
	}
	*l = *now
	return nil
}

// sameFile reports whether two readings of a device found one backing file.
func (l *Loop) sameFile(other *Loop) bool {
	if l.unconfirmed || other.unconfirmed {
		return l.BackingFile == other.BackingFile
	}
	return l.device == other.device && l.inode == other.inode
}

// withOpen runs do while the device is open, opening it if necessary.
func (l *Loop) withOpen(do func() error) error {
	if l.file != nil {
		return do()
	}
	if err := l.Open(); err != nil {
		return err
	}
	return errors.Join(do(), l.Close())
}

// SetCapacity makes the device as large as its file is now and returns its
// size in bytes.
func (l *Loop) SetCapacity() (int64, error) {
	err := l.withOpen(func() error {
		if err := unix.IoctlSetInt(int(l.file.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
			return fmt.Errorf("grow %s: %w", l.Path, err)
		}
		return l.read()
	})
	return l.Size, err
}

func deviceSize(device *os.File) (int64, error) {
	size, err := device.Seek(0, 2)
	if err != nil {
		return 0, fmt.Errorf("read size of %s: %w", device.Name(), err)
	}
	return size, nil
}

func statFile(file *os.File) (unix.Stat_t, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return stat, fmt.Errorf("stat %s: %w", file.Name(), err)
	}
	return stat, nil
}

// closeQuietly closes a descriptor that was only read or asked.
func closeQuietly(file *os.File) { _ = file.Close() }
