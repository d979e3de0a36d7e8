package fs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Requests that x/sys lacks.
const (
	ext4ResizeFS  = 0x40086610 // EXT4_IOC_RESIZE_FS, _IOW('f', 16, __u64)
	xfsFSGeometry = 0x8100587e // XFS_IOC_FSGEOMETRY, _IOR('X', 126, 256 bytes)
	xfsGrowData   = 0x4010586e // XFS_IOC_FSGROWFSDATA, _IOW('X', 110, 16 bytes)
	btrfsResize   = 0x50009403 // BTRFS_IOC_RESIZE, _IOW(0x94, 3, 4096 bytes)
	btrfsFSInfo   = 0x8400941f // BTRFS_IOC_FS_INFO, _IOR(0x94, 31, 1024 bytes)
	btrfsDevInfo  = 0xd000941e // BTRFS_IOC_DEV_INFO, _IOWR(0x94, 30, 4096 bytes)
)

// xfsGeometry is the beginning of struct xfs_fsop_geom (xfs_fs.h).
type xfsGeometry struct {
	blockSize, rtExtentSize, agBlocks, agCount, logBlocks, sectorSize, inodeSize, maxPercent uint32
	dataBlocks                                                                               uint64
	_                                                                                        [256 - 40]byte
}

type xfsGrow struct {
	newBlocks  uint64
	maxPercent uint32
	_          uint32
}

// Size is the size of the mounted filesystem in bytes, its own structures
// included; it equals the device's when the filesystem fills it.
func Size(target *os.File, fsType string) (int64, error) {
	switch fsType {
	case Ext4, Ext3:
		return ext4Size(target)
	case XFS:
		geometry, err := readXFSGeometry(target)
		return int64(geometry.dataBlocks) * int64(geometry.blockSize), err
	case Btrfs:
		return btrfsSize(target)
	}
	return 0, fmt.Errorf("%w: filesystem %q", backend.ErrInvalid, fsType)
}

// UsableSize is the size of a mounted filesystem in bytes as statfs(2) reports it. ext4
// leaves its own structures out. It reads memory only, so it also answers while Grow runs.
func UsableSize(target *os.File) (int64, error) {
	connection, err := target.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("statfs %s: %w", target.Name(), err)
	}
	var stat unix.Statfs_t
	var failed error
	if err := connection.Control(func(fd uintptr) { failed = unix.Fstatfs(int(fd), &stat) }); err != nil || failed != nil {
		return 0, fmt.Errorf("statfs %s: %w", target.Name(), errors.Join(err, failed))
	}
	return int64(stat.Blocks) * stat.Frsize, nil
}

// Grow makes the mounted filesystem that target (a directory) is on fill a
// device of size bytes. It does nothing if the filesystem has that size, and runs no
// program.
func Grow(target *os.File, fsType string, size int64) error {
	var err error
	switch fsType {
	case Ext4, Ext3:
		err = growExt4(target, size)
	case XFS:
		err = growXFS(target, size)
	case Btrfs:
		err = growBtrfs(target, size)
	default:
		return fmt.Errorf("%w: filesystem %q", backend.ErrInvalid, fsType)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("grow %s at %s: %w: it is mounted read-only", fsType, target.Name(), backend.ErrPrecondition)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EWOULDBLOCK), errors.Is(err, unix.EINPROGRESS):
		return fmt.Errorf("grow %s at %s: %w: the kernel is resizing it already: %w",
			fsType, target.Name(), backend.ErrBusy, err)
	case errors.Is(err, unix.EPERM) && !CanGrowMounted(fsType):
		return fmt.Errorf("grow %s at %s: %w: this process lacks CAP_SYS_RESOURCE, which the kernel demands for it; it "+
			"grows when it is staged again", fsType, target.Name(), backend.ErrPrecondition)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("grow %s at %s: %w: the kernel refuses; a filesystem with recorded errors must be checked first "+
			"(dmesg)", fsType, target.Name(), backend.ErrPrecondition)
	}
	return fmt.Errorf("grow %s at %s to %d bytes: %w", fsType, target.Name(), size, err)
}

// CanGrowMounted reports whether this process may grow a mounted filesystem. ext4
// alone asks for more than CAP_SYS_ADMIN (ext4_resize_begin, fs/ext4/resize.c),
// and containers without full privilege lack it.
func CanGrowMounted(fsType string) bool {
	if !isExt(fsType) {
		return true
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return true // let the kernel decide
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// ext4Size reads the superblock from the device, whose cache is where ext4
// changes it: statfs hides the overhead, and no ioctl reports it.
func ext4Size(target *os.File) (int64, error) {
	device, err := openDeviceOf(target)
	if err != nil {
		return 0, err
	}
	defer closeQuietly(device)
	sb := make([]byte, 1024)
	if _, err := device.ReadAt(sb, 1024); err != nil {
		return 0, fmt.Errorf("read the superblock of %s: %w", target.Name(), err)
	}
	if binary.LittleEndian.Uint16(sb[0x38:]) != 0xef53 {
		return 0, fmt.Errorf("%s on %s has no ext4 superblock", target.Name(), device.Name())
	}
	blocks := uint64(binary.LittleEndian.Uint32(sb[4:]))
	if binary.LittleEndian.Uint32(sb[0x60:])&0x80 != 0 { // INCOMPAT_64BIT
		blocks |= uint64(binary.LittleEndian.Uint32(sb[0x150:])) << 32
	}
	return int64(blocks << (10 + binary.LittleEndian.Uint32(sb[0x18:]))), nil
}

// openDeviceOf opens the block device of a filesystem that has one, by the name
// that the kernel gives it.
func openDeviceOf(target *os.File) (*os.File, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(target.Fd()), &stat); err != nil {
		return nil, fmt.Errorf("stat %s: %w", target.Name(), err)
	}
	number := uint64(stat.Dev)
	link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(number), unix.Minor(number)))
	if err != nil {
		return nil, fmt.Errorf("device of %s: %w", target.Name(), err)
	}
	device, err := os.Open(filepath.Join("/dev", filepath.Base(link)))
	if err != nil {
		return nil, fmt.Errorf("device of %s: %w", target.Name(), err)
	}
	var found unix.Stat_t
	if err := unix.Fstat(int(device.Fd()), &found); err != nil || uint64(found.Rdev) != number {
		return nil, errors.Join(fmt.Errorf("device of %s: %s is another one",
			target.Name(), device.Name()), err, device.Close())
	}
	return device, nil
}

func growExt4(target *os.File, size int64) error {
	now, err := ext4Size(target)
	if err != nil {
		return err
	}
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(target.Fd()), &stat); err != nil {
		return err
	}
	blocks := uint64(size / stat.Bsize)
	if int64(blocks)*stat.Bsize <= now {
		return nil
	}
	_, err = ioctl(target, ext4ResizeFS, unsafe.Pointer(&blocks))
	return err
}

func readXFSGeometry(target *os.File) (xfsGeometry, error) {
	var geometry xfsGeometry
	if _, err := ioctl(target, xfsFSGeometry, unsafe.Pointer(&geometry)); err != nil {
		return geometry, fmt.Errorf("geometry of %s: %w", target.Name(), err)
	}
	return geometry, nil
}

func growXFS(target *os.File, size int64) error {
	geometry, err := readXFSGeometry(target)
	if err != nil {
		return err
	}
	grow := xfsGrow{newBlocks: uint64(size) / uint64(geometry.blockSize), maxPercent: geometry.maxPercent}
	// The kernel refuses an allocation group below 64 blocks (XFS_MIN_AG_BLOCKS).
	if rest := grow.newBlocks % uint64(geometry.agBlocks); rest < 64 {
		grow.newBlocks -= rest
	}
	if grow.newBlocks <= geometry.dataBlocks {
		return nil
	}
	_, err = ioctl(target, xfsGrowData, unsafe.Pointer(&grow))
	return err
}

// btrfsDevice is the beginning of struct btrfs_ioctl_dev_info_args.
type btrfsDevice struct {
	id                    uint64
	_                     [16]byte
	bytesUsed, totalBytes uint64
	_                     [4096 - 40]byte
}

func btrfsSize(target *os.File) (int64, error) {
	device, err := readBtrfsDevice(target)
	return int64(device.totalBytes), err
}

func readBtrfsDevice(target *os.File) (btrfsDevice, error) {
	var info struct {
		maxID, devices uint64
		_              [1024 - 16]byte
	}
	if _, err := ioctl(target, btrfsFSInfo, unsafe.Pointer(&info)); err != nil {
		return btrfsDevice{}, fmt.Errorf("devices of %s: %w", target.Name(), err)
	}
	device := btrfsDevice{id: info.maxID}
	if _, err := ioctl(target, btrfsDevInfo, unsafe.Pointer(&device)); err != nil {
		return btrfsDevice{}, fmt.Errorf("device of %s: %w", target.Name(), err)
	}
	return device, nil
}

func growBtrfs(target *os.File, size int64) error {
	const sector = 4096
	device, err := readBtrfsDevice(target)
	if err != nil || size/sector*sector <= int64(device.totalBytes) {
		return err
	}
	var arguments struct {
		_    int64
		name [4088]byte
	}
	copy(arguments.name[:], fmt.Sprintf("%d:max", device.id))
	result, err := ioctl(target, btrfsResize, unsafe.Pointer(&arguments))
	if err == nil && result > 0 { // enum btrfs_err_code: another exclusive operation runs
		return unix.EINPROGRESS
	}
	return err
}

func ioctl(file *os.File, request uintptr, argument unsafe.Pointer) (uintptr, error) {
	result, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), request, uintptr(argument))
	if errno != 0 {
		return 0, errno
	}
	return result, nil
}

func closeQuietly(file *os.File) { _ = file.Close() }
