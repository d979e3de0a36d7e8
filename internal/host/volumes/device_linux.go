package volumes

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// deviceFinder finds block devices of volumes, and asks no filesystem. It reads the mount
// table once, if it needs it.
type deviceFinder struct {
	sources map[string]string // devices by mount point; nil before the table was read
}

// of returns the name of the device below a volume, "" if there is none.
func (d *deviceFinder) of(use *store.VolumeUse) string {
	path, at := publishedFor(use, "")
	var major, minor uint32
	if _, err := fmt.Sscanf(at.Device, "%d:%d", &major, &minor); err != nil {
		return ""
	}
	if major == 0 { // of btrfs, and of filesystems without a device
		return d.source(path)
	}
	name, err := blockdev.NameOf(major, minor)
	if err != nil {
		return ""
	}
	return name
}

func (d *deviceFinder) source(path string) string {
	if d.sources == nil {
		d.sources = map[string]string{}
		table, _ := mount.Table() // without it, no device is known
		for _, m := range table {
			if d.sources[m.Mountpoint] = ""; m.FSType == "btrfs" && strings.HasPrefix(m.Source, "/dev/") {
				d.sources[m.Mountpoint] = filepath.Base(m.Source)
			}
		}
	}
	return d.sources[path]
}
