package groups

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// validText makes what a device or Windows calls itself fit for a message, in which a
// string is UTF-8: one odd byte in one serial number would fail the whole answer.
func validText(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// diskNumber reads a disk's number from the text that old versions have for it,
// the request's field of that name.
func diskNumber(field, text string) (uint32, error) {
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s %.40q: %w: the number of a disk is wanted, 0 to 4294967295", field, text, backend.ErrInvalid)
	}
	return uint32(number), nil
}

// diskText is the other way.
func diskText(number uint32) string { return strconv.FormatUint(uint64(number), 10) }
