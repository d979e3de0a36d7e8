package win32

import (
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

const volumePrefix = `\\?\Volume`

// ParseVolumeName reads \\?\Volume{GUID}\, with or without the last backslash and
// in any case, and gives the one spelling that the rest of Holdfast uses: with
// the last backslash, the GUID in lower case. Anything else is ErrInvalid: a text
// that passes names a volume and nothing else, no directory on one and no other
// device.
func ParseVolumeName(text string) (string, error) {
	invalid := fmt.Errorf(`%w: volume ID %.100q: it must be \\?\Volume{GUID}\, as Windows names volumes`,
		backend.ErrInvalid, text)
	if len(text) < len(volumePrefix) || !strings.EqualFold(text[:len(volumePrefix)], volumePrefix) {
		return "", invalid
	}
	braced := strings.TrimSuffix(text[len(volumePrefix):], `\`)
	if !strings.HasPrefix(braced, "{") {
		return "", invalid
	}
	guid, err := ParseGUID(braced)
	if err != nil {
		return "", invalid
	}
	return VolumeName(guid), nil
}

// VolumeName is the name of the volume with that GUID.
func VolumeName(guid GUID) string { return volumePrefix + guid.String() + `\` }
