package nodestats

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adminCommand is struct nvme_passthru_cmd of linux/nvme_ioctl.h.
type adminCommand struct {
	opcode, flags               uint8
	_                           uint16
	namespace                   uint32
	_                           [2]uint32 // cdw2, cdw3
	metadata, address           uint64
	metadataLength, dataLength  uint32
	word10                      uint32
	_                           [5]uint32 // cdw11 to cdw15
	timeoutMilliseconds, result uint32
}

const (
	// ioctlAdmin is NVME_IOCTL_ADMIN_CMD, _IOWR('N', 0x41, struct nvme_admin_cmd).
	ioctlAdmin = 0xC0484E41
	getLogPage = 0x02 // NVM Express base specification, "Get Log Page command"
	logPage    = 0xD0
	identify   = 0x06 // the same, "Identify command"
	controller = 0x01 // its CNS
	// The answer to identify. EBS has the device name in its vendor-specific part (see
	// Amazon's ebsnvme-id).
	identitySize = 4096
	nameFrom     = 3072
	nameSize     = 32
	// asked is the requested length less one, in units of 4 bytes: one unit more than the
	// page has, as in Amazon's program. bufferSize is enough for the answer.
	asked      = 1024
	bufferSize = 8192
)

// The size is part of the ioctl's number.
const _ = -uint(unsafe.Sizeof(adminCommand{}) - ioctlAdmin>>16&0x3fff)

// Read asks an NVMe disk for its statistics. It needs CAP_SYS_ADMIN. It waits until the
// disk answers, by default for 60 s at most (nvme_core.admin_timeout). It does not set a
// shorter timeout, because the kernel resets a disk that exceeds it.
func Read(disk *os.File) (Page, error) {
	buffer, err := ask(disk,
		adminCommand{opcode: getLogPage, namespace: 1, word10: logPage | asked<<16, dataLength: bufferSize})
	if err != nil {
		return Page{}, fmt.Errorf("ask %s for its statistics: %w", disk.Name(), err)
	}
	return Parse(buffer)
}

// DeviceName returns the device name that the attachment of an EBS volume requested, such
// as /dev/xvdaa or sdf. It needs CAP_SYS_ADMIN.
func DeviceName(disk *os.File) (string, error) {
	buffer, err := ask(disk, adminCommand{opcode: identify, word10: controller, dataLength: identitySize})
	if err != nil {
		return "", fmt.Errorf("ask %s for its device name: %w", disk.Name(), err)
	}
	return strings.TrimRight(string(buffer[nameFrom:nameFrom+nameSize]), " \x00"), nil
}

// ask sends a command that reads data from the disk.
func ask(disk *os.File, command adminCommand) ([]byte, error) {
	buffer := make([]byte, command.dataLength)
	var pinned runtime.Pinner
	pinned.Pin(&buffer[0])
	defer pinned.Unpin()
	command.address = uint64(uintptr(unsafe.Pointer(&buffer[0])))
	status, _, errno := unix.Syscall(unix.SYS_IOCTL, disk.Fd(), ioctlAdmin, uintptr(unsafe.Pointer(&command)))
	switch {
	case errno != 0:
		return nil, errno
	case status != 0: // of the NVMe completion
		return nil, fmt.Errorf("%w: the disk answers with status %#x", ErrNotAPage, status)
	}
	return buffer, nil
}
