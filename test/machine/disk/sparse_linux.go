package disk

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// nextData is the first offset from here on that may have data; math.MaxInt64 if
// only zeros follow.
func nextData(file *os.File, from int64) (int64, error) {
	offset, err := unix.Seek(int(file.Fd()), from, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return math.MaxInt64, nil
	}
	return offset, err
}
