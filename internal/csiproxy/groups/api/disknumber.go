package api

import (
	"fmt"
	"strconv"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// DiskNumber reads a disk's number from the text that old versions have for it,
// the request's field of that name.
func DiskNumber(field, text string) (uint32, error) {
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s %.40q: %w: the number of a disk is wanted, 0 to 4294967295", field, text, backend.ErrInvalid)
	}
	return uint32(number), nil
}

// DiskText is the other way.
func DiskText(number uint32) string { return strconv.FormatUint(uint64(number), 10) }
