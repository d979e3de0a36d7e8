// Package nodeside is the node half of the EBS backend: it finds the block device of an
// attached volume, and reports the identity of the instance and its limit of volumes. It
// makes no EC2 call and needs no credentials. It reads sysfs, /dev and the sources of
// instance metadata.
//
// The NVMe serial number of a disk identifies its volume. It is read again after the
// device was opened, and the open descriptor keeps the kernel from assigning the device
// number to another disk. Names such as nvme1n1 and links of udev can change their disk,
// so they are not used.
package nodeside

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/limits"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
)

// Metadata identifies this instance; metadata.Chain implements it.
type Metadata interface {
	Instance(ctx context.Context) (metadata.Instance, error)
}

// Options of a Node. A field with the zero value has its default.
type Options struct {
	// SysRoot and DevRoot are the directories of sysfs and of the device nodes, /sys and
	// /dev; an emulated instance has others.
	SysRoot, DevRoot string
	// StateDir is for format marks and for the names of Xen disks. It must be on the
	// machine's disk, and no other program may use it. The first write creates it. If it
	// is empty, no marks are kept and Xen disks are not found.
	StateDir string
	// Model is the NVMe model number of EBS volumes, AmazonModel by default; AnyModel
	// accepts any.
	Model string
	// Wait bounds how long OpenDevice waits for a device to appear, within the
	// caller's context; 30 s by default.
	Wait time.Duration
	// MountPrefix is the prefix of mount points of volumes that another driver of the same
	// name staged, before this one replaced it. Their statistics are reported too; ""
	// means none.
	MountPrefix string
	// LegacyXFS makes mkfs.xfs create filesystems that Linux 5.4 and older can mount.
	LegacyXFS bool
	// Metadata is asked for NodeInfo.
	Metadata Metadata
	// Limits override the derived limit of volumes.
	Limits limits.Config
	// Logger and Registerer may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

const defaultWait = 30 * time.Second

func (o Options) withDefaults() Options {
	if o.SysRoot == "" {
		o.SysRoot = "/sys"
	}
	if o.DevRoot == "" {
		o.DevRoot = "/dev"
	}
	if o.Model == "" {
		o.Model = AmazonModel
	}
	if o.Wait <= 0 {
		o.Wait = defaultWait
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
