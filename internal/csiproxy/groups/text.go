package groups

import (
	"strconv"
	"strings"
)

// validText makes a text of a device or of Windows valid UTF-8, as in messages: one
// invalid byte in one serial number would fail the whole answer.
func validText(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// diskText is a disk's number in the form of old versions.
func diskText(number uint32) string { return strconv.FormatUint(uint64(number), 10) }
