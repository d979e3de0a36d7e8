package mount

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// StoppedWrites reports whether the filesystem of an open directory takes no writes: it
// is read-only, or the kernel has stopped writes after an error or a shutdown. An ext4
// that stopped shows that in its options since Linux 6.15 (ext4_show_options); before,
// only what starts a transaction finds out. The others that volumes and pools have become
// read-only.
func StoppedWrites(dir *os.File) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &stat); err != nil {
		return false, &os.PathError{Op: "statfs", Path: dir.Name(), Err: err}
	}
	switch {
	case stat.Flags&unix.ST_RDONLY != 0:
		return true, nil
	case stat.Type != unix.EXT4_SUPER_MAGIC:
		return false, nil
	case !kernelShowsStop():
		return RefusesTransaction(dir), nil
	}
	options, err := optionsOf(dir)
	if err != nil {
		return false, fmt.Errorf("read the mount options of %s: %w", dir.Name(), err)
	}
	return HasOption(options, "emergency_ro") || HasOption(options, "shutdown"), nil
}

// optionsOf returns the options of the filesystem of an open directory, separated by
// commas. It asks for this mount alone (statmount(2), Linux 6.8): the table of a node
// with a thousand volumes takes milliseconds to read. Where the call is refused, as by
// the seccomp profile of a container, it reads the table.
func optionsOf(dir *os.File) (string, error) {
	options, err := statMountOptions(dir)
	if err == nil {
		return options, nil
	}
	var stat unix.Statx_t
	if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &stat); err != nil {
		return "", err
	}
	table, err := Table()
	if err != nil {
		return "", err
	}
	if entry := ByID(table, stat.Mnt_id); entry != nil {
		return entry.VFSOptions, nil
	}
	return "", nil
}

// The layouts of struct mnt_id_req and struct statmount, and the flag (linux/mount.h).
type mountRequest struct {
	size  uint32
	_     uint32
	mount uint64
	mask  uint64
}

type mountAnswer struct {
	size    uint32
	options uint32 // offset in text
	mask    uint64
	_       [512 - 16]byte
	text    [8 << 10]byte
}

const statmountOptions = 0x80 // STATMOUNT_MNT_OPTS, Linux 6.11

func statMountOptions(dir *os.File) (string, error) {
	var stat unix.Statx_t
	if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID_UNIQUE, &stat); err != nil {
		return "", err
	}
	if stat.Mask&unix.STATX_MNT_ID_UNIQUE == 0 {
		return "", errors.ErrUnsupported
	}
	request := mountRequest{mount: stat.Mnt_id, mask: statmountOptions}
	request.size = uint32(unsafe.Sizeof(request))
	var answer mountAnswer
	_, _, errno := unix.Syscall6(unix.SYS_STATMOUNT, uintptr(unsafe.Pointer(&request)),
		uintptr(unsafe.Pointer(&answer)), unsafe.Sizeof(answer), 0, 0, 0)
	if errno != 0 {
		return "", errno
	}
	if answer.mask&statmountOptions == 0 || int(answer.options) >= len(answer.text) {
		return "", errors.ErrUnsupported
	}
	options, _, _ := bytes.Cut(answer.text[answer.options:], []byte{0})
	return strings.TrimSpace(string(options)), nil
}
