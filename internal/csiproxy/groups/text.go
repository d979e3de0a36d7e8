package groups

import (
	"strconv"
	"strings"
)

// validText makes what a device or Windows calls itself fit for a message, in which a
// string is UTF-8: one odd byte in one serial number would fail the whole answer.
func validText(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// diskText is a disk's number in the form that old versions have for it.
func diskText(number uint32) string { return strconv.FormatUint(uint64(number), 10) }
