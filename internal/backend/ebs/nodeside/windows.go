package nodeside

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// Windows identifies the EBS volumes among the disks of a Windows instance. It looks
// at nothing by itself, and runs on every system.
type Windows struct{ identity *identity }

// NewWindows makes one of the Options' Metadata, Limits, Logger and Registerer;
// the other options are Linux's.
func NewWindows(o Options) (*Windows, error) {
	identity, err := newIdentity(o.withDefaults(), "windows")
	if err != nil {
		return nil, fmt.Errorf("EBS volumes on this node: %w", err)
	}
	return &Windows{identity: identity}, nil
}

// NodeInfo returns the instance, its topology, and how many volumes it can take. Of the
// attached volumes only the root counts as not the driver's: Windows does not report
// what the others are for. If there are more, an administrator configures the number
// of reserved slots.
func (w *Windows) NodeInfo(ctx context.Context) (backend.NodeInfo, error) {
	instance, err := w.identity.instance(ctx)
	if err != nil {
		return backend.NodeInfo{}, err
	}
	return w.identity.info(instance, 1), nil
}

// CheckID refuses what cannot be the ID of an EBS volume, with ErrNotFound.
func (w *Windows) CheckID(id string) error {
	_, err := serialOf(id)
	return err
}

// IsVolume reports by a disk's serial number whether it is a volume. Where the
// serial number has no ID of a volume, as with PV drivers of Xen instances that
// are too old, no disk is a volume's: a location on a bus proves nothing.
func (w *Windows) IsVolume(id string, _ map[string]string, disk api.Disk) bool {
	return volumeID.MatchString(id) && idInSerial(disk.SerialNumber) == id
}

// idInSerial is the ID of the EBS volume in a serial number as Windows shows it,
// "" when there is none. NVMe disks have vol0123456789abcdef0_00000001., with the
// number of the namespace; disks of Xen's PV drivers have vol0123456789abcdef0,
// and some stacks fill up with blanks, write in upper case, or leave the dash in.
// "Contains the ID" is not enough: the old IDs of 8 digits are the beginning of
// others of 17.
func idInSerial(serial string) string {
	text := strings.ToLower(padded(serial))
	at := strings.Index(text, "vol")
	if at < 0 || at > 0 && isAlphanumeric(text[at-1]) {
		return ""
	}
	digits := strings.TrimPrefix(text[at+len("vol"):], "-")
	end := strings.IndexFunc(digits, func(r rune) bool { return r > 'z' || !isAlphanumeric(byte(r)) })
	if end >= 0 {
		digits = digits[:end]
	}
	return idOf("vol" + digits)
}

func isAlphanumeric(b byte) bool { return '0' <= b && b <= '9' || 'a' <= b && b <= 'z' }
