package blockdev

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Number returns the device number of an open block device; an error for other files.
func Number(device *os.File) (uint64, error) {
	stat, err := statFile(device)
	if err != nil {
		return 0, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, fmt.Errorf("%s is not a block device", device.Name())
	}
	return uint64(stat.Rdev), nil
}
