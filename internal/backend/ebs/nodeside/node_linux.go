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
	opened map[string]target   // by volume ID: what OpenDevice gave last
	idle   map[uint64]idleDisk // by number: see foreignDisks

	// deviceName is nodestats.DeviceName; tests have disks that know no NVMe.
	deviceName func(*os.File) (string, error)
}

var _ backend.Node = (*Node)(nil)

// New makes a Node, and removes what earlier boots left in the state directory.
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
		err = n.tellStatistics(nodestats.Read)
	}
	if err != nil {
		return nil, fmt.Errorf("EBS volumes on this node: %w", err)
	}
	if err := n.sweep(); err != nil {
		o.Logger.Warn("records of volumes that are gone could not be removed", "directory", o.StateDir, "error", err)
	}
	return n, nil
}

// sweep forgets volumes that are not attached any more.
func (n *Node) sweep() error {
	disks, err := n.sys.nvmeDisks()
	if err != nil {
		return err
	}
	here := map[string]bool{}
	for _, d := range disks {
		here[idOf(d.serial)] = true
	}
	return n.records.sweep(func(id string) bool {
		claim, err := n.records.read(id, claimSuffix)
		return here[id] || err != nil || (claim != nil && claim.Xen != "")
	})
}

// Close ends the use of the state directory.
func (n *Node) Close() error {
	if n.collector != nil {
		n.options.Registerer.Unregister(n.collector)
	}
	return n.records.close()
}

// OpenDevice finds the device of an attached volume and opens it, waiting for
// it within bounds: an attachment is complete for EC2 before the instance sees
// the disk. ErrUnavailable when it does not appear, ErrPrecondition when what is
// there cannot be the volume, ErrInvalid for a volume context that is wrong.
func (n *Node) OpenDevice(ctx context.Context, r backend.DeviceRequest) (*backend.Device, error) {
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

// openNow polls once; nil if there is no device.
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
		return device, nil // the caller sees which access it has
	}
	device.ReadOnly = w.readOnly
	return device, err
}

// claim remembers that a volume is the driver's, and what it was opened as.
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
	if err != nil && !t.disk.xen { // there it is found again without
		n.options.Logger.Warn("a volume may be counted as foreign", "volume", w.volumeID, "error", err)
		return nil
	}
	return err
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
	readOnly, err := blockdev.IsReadOnly(file)
	if err != nil {
		return nil, err
	}
	return &backend.Device{
		Path: filepath.Join(n.options.DevRoot, t.name), Number: t.number,
		Size: int64(size), SectorSize: sector, ReadOnly: readOnly,
	}, nil
}
