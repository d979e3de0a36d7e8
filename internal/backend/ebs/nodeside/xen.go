package nodeside

import (
	"regexp"
	"strconv"
	"strings"
)

// slot is a slot of the virtual bus of Xen: the number of a disk by the letters of its
// name (a is 0, z 25, aa 26), and a partition of it, 0 for the whole disk.
type slot struct{ disk, part int }

var xenName = regexp.MustCompile(`^(?:/dev/)?(?:sd|xvd)([a-z]{1,2})([0-9]*)$`)

// slotOfName is the slot that a device name of EC2 means. /dev/sdf and /dev/xvdf
// are one slot: the guest shows both as xvdf (EC2 user guide, "Device names").
func slotOfName(name string) (s slot, isName bool) {
	match := xenName.FindStringSubmatch(name)
	if match == nil {
		return slot{}, false
	}
	s.disk = -1
	for _, letter := range match[1] {
		s.disk = (s.disk+1)*26 + int(letter-'a')
	}
	if match[2] != "" {
		s.part, _ = strconv.Atoi(match[2])
	}
	return s, true
}

// slotOfNode is the slot of a virtual disk by its name in xenstore, which has the number
// that Xen assigned, such as device/vbd/51792 (Xen, xen-vbd-interface(7)).
func slotOfNode(node string) (s slot, isDisk bool) {
	text, isDisk := strings.CutPrefix(node, "device/vbd/")
	number, err := strconv.Atoi(text)
	if !isDisk || err != nil || number < 0 {
		return slot{}, false
	}
	const extended, xvd, scsi = 1 << 28, 202 << 8, 8 << 8
	switch {
	case number&extended != 0:
		return slot{disk: (number &^ extended) >> 8, part: number & 0xff}, true
	case number >= xvd && number < xvd+256:
		return slot{disk: (number - xvd) >> 4, part: number & 0xf}, true
	case number >= scsi && number < scsi+256:
		return slot{disk: (number - scsi) >> 4, part: number & 0xf}, true
	}
	return slot{}, false
}
