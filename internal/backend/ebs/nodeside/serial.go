package nodeside

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// AmazonModel is the NVMe model number of an EBS volume (EC2 user guide,
// "Identify the EBS device"). An instance store disk has another.
const AmazonModel = "Amazon Elastic Block Store"

// AnyModel as Options.Model accepts every model; the serial number alone then decides.
const AnyModel = "any"

// volumeID is the form of EBS volume IDs: 8 digits for volumes from before 2016, 17 since.
var volumeID = regexp.MustCompile(`^vol-(?:[0-9a-f]{8}|[0-9a-f]{17})$`)

// serialOf is the NVMe serial number of a volume: its ID without the dash. ErrNotFound for
// a malformed ID.
func serialOf(id string) (string, error) {
	if !volumeID.MatchString(id) {
		return "", fmt.Errorf("%w: %.64q is not the ID of an EBS volume (vol- and 8 or 17 hexadecimal digits)",
			backend.ErrNotFound, id)
	}
	return strings.Replace(id, "-", "", 1), nil
}

// idOf is the volume ID of a serial number, "" if it has none.
func idOf(serial string) string {
	digits, isVolume := strings.CutPrefix(serial, "vol")
	if id := "vol-" + digits; isVolume && volumeID.MatchString(id) {
		return id
	}
	return ""
}

// unpadded removes the padding of an NVMe identify string (NVM Express base
// specification, "ASCII data": spaces; some devices use zeros).
func unpadded(text string) string { return strings.Trim(text, " \x00\n") }
