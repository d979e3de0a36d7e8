package nodeside

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctlUint64 makes an ioctl that writes 64 bits. x/sys has it for int only.
func ioctlUint64(file *os.File, request uint) (uint64, error) {
	var value uint64
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), uintptr(request), uintptr(unsafe.Pointer(&value)))
	if errno != 0 {
		return 0, errno
	}
	return value, nil
}
