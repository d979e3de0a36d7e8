// Package nodeside is the node half of the EBS backend: it finds the block
// device of an attached volume, reports which instance this is and how many volumes
// it can take. It makes no EC2 call and needs no credentials: all it knows comes
// from sysfs, from /dev and from the metadata sources it is given.
//
// A device is a volume's when its NVMe serial number says so, and only as long:
// the number is read again after the device was opened, and the open descriptor
// keeps the kernel from giving the device number to another disk. Names such as
// nvme1n1 and links that udev makes prove nothing, so neither is trusted.
package nodeside

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/limits"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
)

// Metadata reports which instance this is; metadata.Chain is the usual one.
type Metadata interface {
	Instance(ctx context.Context) (metadata.Instance, error)
}

// Options are what a Node is made of. The zero value of a field is its default.
type Options struct {
	// SysRoot and DevRoot are where sysfs and the device nodes are, /sys and
	// /dev; an emulated instance has its own.
	SysRoot, DevRoot string
	// StateDir is for format marks and for the names of Xen disks. It must be
	// on the machine's disk and belong to this driver alone. It is made when
	// first written to; without one no marks are kept and there are no Xen disks.
	StateDir string
	// Model is the NVMe model number that an EBS volume has, AmazonModel by
	// default; AnyModel accepts each.
	Model string
	// Wait bounds how long OpenDevice waits for a device to appear, within the
	// caller's context; 30 s by default.
	Wait time.Duration
	// MountPrefix begins the mount points of the driver's volumes that this process has
	// not opened: another driver of the same name may have, before this one replaced
	// it. Their statistics are reported too; "" means none.
	MountPrefix string
	// LegacyXFS makes every xfs one that Linux 5.4 and older can mount.
	LegacyXFS bool
	// Metadata is asked for NodeInfo.
	Metadata Metadata
	// Limits say how many volumes may be attached.
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
