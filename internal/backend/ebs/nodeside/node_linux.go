package nodeside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/limits"
)

// Node finds the devices of attached volumes. It is safe for concurrent use.
type Node struct {
	options Options
	sys     sysfs
	watch   watch
	limit   atomic.Pointer[limits.Result]
}

var _ backend.Node = (*Node)(nil)

// New makes a Node. It looks at nothing yet.
func New(o Options) (*Node, error) {
	o = o.withDefaults()
	return &Node{options: o, sys: sysfs{root: o.SysRoot}, watch: watch{dir: o.DevRoot}}, nil
}

// OpenDevice finds the device of an attached volume and opens it, waiting for
// it within bounds: an attachment is complete for EC2 before the instance sees
// the disk. ErrUnavailable when it does not appear, ErrPrecondition when what is
// there cannot be the volume, ErrInvalid for a volume context that is wrong.
func (n *Node) OpenDevice(ctx context.Context, r backend.DeviceRequest) (*backend.Device, error) {
	w, err := newWish(r, n.options.LegacyXFS)
	if err != nil {
		return nil, err
	}
	device, err := n.await(ctx, w, func() (*backend.Device, error) { return n.openNow(w) })
	if err != nil {
		return nil, fmt.Errorf("device of volume %s: %w", r.VolumeID, err)
	}
	return device, nil
}

// openNow is one look; nil while there is nothing to see.
func (n *Node) openNow(w wish) (*backend.Device, error) {
	t, err := n.find(w)
	if t == nil || err != nil {
		return nil, err
	}
	file, err := n.open(*t)
	if err != nil {
		return nil, err
	}
	device, err := n.deviceOf(*t, file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	device.Format = w.format
	device.Close = file.Close
	return device, nil
}

// deviceOf describes an open device. Blocks are not given back: EBS does not
// take them.
func (n *Node) deviceOf(t target, file *os.File) (*backend.Device, error) {
	size, err := ioctlUint64(file, unix.BLKGETSIZE64)
	if err != nil {
		return nil, fmt.Errorf("read the size of %s: %w", t.name, err)
	}
	sector, err := unix.IoctlGetInt(int(file.Fd()), unix.BLKSSZGET)
	if err != nil {
		return nil, fmt.Errorf("read the sector size of %s: %w", t.name, err)
	}
	readOnly, err := unix.IoctlGetInt(int(file.Fd()), unix.BLKROGET)
	if err != nil {
		return nil, fmt.Errorf("read whether %s can be written: %w", t.name, err)
	}
	return &backend.Device{
		Path: filepath.Join(n.options.DevRoot, t.name), Number: t.number,
		Size: int64(size), SectorSize: sector, ReadOnly: readOnly != 0,
	}, nil
}

// Devices lists the volume's disk and its partitions.
func (n *Node) Devices(_ context.Context, id string) ([]backend.Device, error) {
	serial, err := serialOf(id)
	if err != nil {
		return nil, nil // nothing that has no ID of ours has a device
	}
	d, err := n.findDisk(wish{volumeID: id, serial: serial})
	if d == nil || err != nil {
		return nil, err
	}
	targets := []target{{disk: *d, name: d.name, number: d.number}}
	partitions, err := n.sys.partitions(d.name)
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		targets = append(targets, target{disk: *d, index: p.index, name: p.name, number: p.number})
	}
	return n.describe(targets)
}

// describe opens each target for a moment; those that are gone are left out.
func (n *Node) describe(targets []target) ([]backend.Device, error) {
	var devices []backend.Device
	for _, t := range targets {
		file, err := n.open(t)
		if errors.Is(err, errChanged) {
			continue
		}
		if err != nil {
			return nil, err
		}
		device, err := n.deviceOf(t, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
		devices = append(devices, *device)
	}
	return devices, nil
}

// ResizeDevice reads the disk's size again: the NVMe driver of Linux follows a
// volume by itself. Partitions are not grown.
func (n *Node) ResizeDevice(ctx context.Context, id string) (int64, error) {
	devices, err := n.Devices(ctx, id)
	if err != nil || len(devices) == 0 {
		return 0, err
	}
	return devices[0].Size, nil
}

// CloseDevice leaves the disk, which the controller detaches.
func (n *Node) CloseDevice(context.Context, string) error { return nil }

// Close ends what runs in the background.
func (n *Node) Close() error { return nil }
