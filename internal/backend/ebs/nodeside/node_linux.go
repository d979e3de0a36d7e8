package nodeside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodestats"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
)

// Node finds the devices of attached volumes. It is safe for concurrent use.
type Node struct {
	options   Options
	sys       sysfs
	watch     watch
	records   records
	identity  *identity
	collector *nodestats.Collector // nil without metrics

	mu     sync.Mutex
	opened map[string]target   // by volume ID: the last result of OpenDevice
	idle   map[uint64]idleDisk // by number; see foreignDisks

	// deviceName is nodestats.DeviceName; the disks of tests are not NVMe.
	deviceName func(*os.File) (string, error)
}

var _ backend.Node = (*Node)(nil)

// New makes a Node, and removes outdated records from the state directory.
func New(o Options) (*Node, error) {
	o = o.withDefaults()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("EBS volumes on this node: %w", err)
	}
	n := &Node{options: o, sys: sysfs{root: o.SysRoot}, watch: watch{dir: o.DevRoot},
		records: records{path: o.StateDir, boot: strings.TrimSpace(string(boot))},
		opened:  map[string]target{}, idle: map[uint64]idleDisk{}, deviceName: nodestats.DeviceName}
	if n.identity, err = newIdentity(o, "linux"); err == nil {
		err = n.registerStatistics(nodestats.Read)
	}
	if err != nil {
		return nil, fmt.Errorf("EBS volumes on this node: %w", err)
	}
	if err := n.sweep(); err != nil {
		o.Logger.Warn("records of volumes that are gone could not be removed", "directory", o.StateDir, "error", err)
	}
	return n, nil
}

// sweep removes the records of volumes that are not attached.
func (n *Node) sweep() error {
	disks, err := n.sys.nvmeDisks()
	if err != nil {
		return err
	}
	attached := map[string]bool{}
	for _, d := range disks {
		attached[idOf(d.serial)] = true
	}
	return n.records.sweep(func(id string) bool {
		claim, err := n.records.read(id, claimSuffix)
		return attached[id] || err != nil || (claim != nil && claim.Xen != "")
	})
}

// Close ends the use of the state directory.
func (n *Node) Close() error {
	if n.collector != nil {
		n.options.Registerer.Unregister(n.collector)
	}
	return n.records.close()
}

// OpenDevice finds the device of an attached volume and opens it. It waits for the
// device, because EC2 completes an attachment before the instance sees the disk.
// ErrUnavailable if the device does not appear, ErrPrecondition if the device cannot be
// the volume, ErrInvalid for an invalid volume context.
func (n *Node) OpenDevice(ctx context.Context, r backend.DeviceRequest) (*backend.Device, error) {
	r, err := n.resolve(ctx, r)
	if err != nil {
		return nil, err
	}
	w, err := newRequest(r, n.options.LegacyXFS)
	if err != nil {
		return nil, err
	}
	device, err := n.await(ctx, w, func() (*backend.Device, error) { return n.openNow(w) })
	if err != nil {
		return nil, fmt.Errorf("device of volume %s: %w", r.VolumeID, err)
	}
	return device, nil
}

// openNow makes one attempt; nil if the device does not exist.
func (n *Node) openNow(w request) (*backend.Device, error) {
	t, err := n.find(w)
	if t == nil || err != nil {
		return nil, err
	}
	file, err := n.open(*t)
	if err != nil {
		return nil, err
	}
	device, err := n.openTarget(w, *t, file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	device.Format = w.format
	return device, nil
}

func (n *Node) openTarget(w request, t target, file *os.File) (*backend.Device, error) {
	device, err := n.deviceOf(t, file)
	if err != nil {
		return nil, err
	}
	device.Close = file.Close
	if err := n.claim(w, t, file); err != nil {
		return nil, err
	}
	if device.ReadOnly == w.readOnly {
		return device, nil
	}
	err = blockdev.SetReadOnly(file, w.readOnly)
	if errors.Is(err, backend.ErrPrecondition) {
		return device, nil // ReadOnly reports the access
	}
	device.ReadOnly = w.readOnly
	return device, err
}

// claim records that a volume is the driver's, and which device was opened.
func (n *Node) claim(w request, t target, file *os.File) error {
	sequence, err := diskSequence(file)
	if err != nil {
		return err
	}
	n.mu.Lock()
	before, known := n.opened[w.volumeID]
	n.opened[w.volumeID] = t
	n.mu.Unlock()
	if known && before == t {
		return nil
	}
	claim := record{Disk: appearance{Sequence: sequence, Number: t.disk.number}}
	if t.disk.xen {
		claim.Xen = t.disk.name
	}
	err = n.records.write(w.volumeID, claimSuffix, claim, false)
	if err != nil && !t.disk.xen { // an NVMe disk is found without its record
		n.options.Logger.Warn("a volume may be counted as foreign", "volume", w.volumeID, "error", err)
		return nil
	}
	return err
}

// deviceOf describes an open device. It does not offer discard, which EBS lacks.
func (n *Node) deviceOf(t target, file *os.File) (*backend.Device, error) {
	size, err := ioctlUint64(file, unix.BLKGETSIZE64)
	if err != nil {
		return nil, fmt.Errorf("read the size of %s: %w", t.name, err)
	}
	sector, err := unix.IoctlGetInt(int(file.Fd()), unix.BLKSSZGET)
	if err != nil {
		return nil, fmt.Errorf("read the sector size of %s: %w", t.name, err)
	}
	readOnly, err := blockdev.IsReadOnly(file)
	if err != nil {
		return nil, err
	}
	return &backend.Device{
		Path: filepath.Join(n.options.DevRoot, t.name), Number: t.number,
		Size: int64(size), SectorSize: sector, ReadOnly: readOnly,
	}, nil
}
