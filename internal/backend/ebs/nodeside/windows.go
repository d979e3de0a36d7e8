package nodeside

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodelocal"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// Windows identifies the EBS volumes among the disks of a Windows instance. It reads no
// disk itself, and runs on every system.
type Windows struct{ identity *identity }

// NewWindows makes a Windows from the Metadata, Limits, Logger and Registerer of the
// Options; the other options are for Linux.
func NewWindows(o Options) (*Windows, error) {
	identity, err := newIdentity(o.withDefaults(), "windows")
	if err != nil {
		return nil, fmt.Errorf("EBS volumes on this node: %w", err)
	}
	return &Windows{identity: identity}, nil
}

// NodeInfo returns the ID of the instance, its topology and its limit of volumes. Windows
// does not report the purpose of volumes: those that are not the driver's are the root
// volume and those that the metadata has. If there are more, an administrator configures
// the number of reserved slots.
func (w *Windows) NodeInfo(ctx context.Context) (backend.NodeInfo, error) {
	instance, err := w.identity.instance(ctx)
	if err != nil {
		return backend.NodeInfo{}, err
	}
	return w.identity.info(instance, 1+instance.Volumes), nil
}

// CheckID returns ErrNotFound for a malformed volume ID, and for a node-local volume: nothing
// records on Windows which volume its handle means, for the calls without a publish context.
func (w *Windows) CheckID(id string) error {
	if nodelocal.Is(id) {
		return fmt.Errorf("%w: volume %.64q is node-local, which Windows nodes do not serve; "+
			"keep its pods on Linux nodes with the node selector kubernetes.io/os: linux", backend.ErrNotFound, id)
	}
	_, err := serialOf(id)
	return err
}

// IsVolume reports whether a disk is a volume, by its serial number. With PV drivers of
// Xen that are too old, the serial number lacks the ID, and no disk is a volume, because
// its location on a bus does not identify it.
func (w *Windows) IsVolume(id string, _ map[string]string, disk api.Disk) bool {
	return volumeID.MatchString(id) && idInSerial(disk.SerialNumber) == id
}

// idInSerial is the ID of the EBS volume in a serial number that Windows shows, "" if it
// has none. NVMe disks have vol0123456789abcdef0_00000001., with the number of the
// namespace. Disks of Xen's PV drivers have vol0123456789abcdef0. Some stacks pad with
// blanks, use upper case, or keep the dash. The digits are compared as a whole, because an
// old ID of 8 digits may be the beginning of one of 17.
func idInSerial(serial string) string {
	text := strings.ToLower(unpadded(serial))
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
