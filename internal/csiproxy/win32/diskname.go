package win32

import (
	"math"
	"strconv"
	"strings"
)

// physicalDrive begins the names of disks among the MS-DOS device names.
const physicalDrive = "PhysicalDrive"

// DiskName returns the path that opens the disk of a number.
func DiskName(number uint32) string {
	return `\\.\` + physicalDrive + strconv.FormatUint(uint64(number), 10)
}

// DiskNumbers returns the numbers of the disks among MS-DOS device names, such as
// 7 of PhysicalDrive7.
func DiskNumbers(names []string) []uint32 {
	var numbers []uint32
	for _, name := range names {
		if len(name) <= len(physicalDrive) || !strings.EqualFold(name[:len(physicalDrive)], physicalDrive) {
			continue
		}
		number, err := strconv.ParseUint(name[len(physicalDrive):], 10, 32)
		if err == nil && number != math.MaxUint32 { // Windows' number for a device without one
			numbers = append(numbers, uint32(number))
		}
	}
	return numbers
}
