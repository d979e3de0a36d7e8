package nodeside

import (
	"fmt"
	"regexp"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodelocal"
)

// target is the disk of a request on this machine, or a partition of it.
type target struct {
	disk   disk
	index  int // of the partition; 0 is the whole disk
	name   string
	number uint64
}

func wholeOf(d disk) target { return target{disk: d, name: d.name, number: d.number} }

// find returns the target of a request; nil if it does not exist, or not yet.
func (n *Node) find(w request) (*target, error) {
	d, err := n.findDisk(w)
	if d == nil || err != nil {
		return nil, err
	}
	whole := wholeOf(*d)
	if w.partition == 0 {
		return &whole, nil
	}
	partitions, err := n.partitionsOf(*d)
	if err != nil {
		return nil, err
	}
	for i := range partitions {
		if partitions[i].index == w.partition {
			return &partitions[i], nil
		}
	}
	if len(partitions) > 0 {
		return nil, fmt.Errorf("%w: volume %s has no partition %d (disk %s has %d); change the volume attribute %s",
			backend.ErrPrecondition, w.volumeID, w.partition, d.name, len(partitions), keyPartition)
	}
	return nil, nil // the kernel may still be reading the table
}

func (n *Node) partitionsOf(d disk) ([]target, error) {
	partitions, err := n.sys.partitions(d.name)
	if err != nil {
		return nil, err
	}
	targets := make([]target, len(partitions))
	for i, p := range partitions {
		targets[i] = target{disk: d, index: p.index, name: p.name, number: p.number}
	}
	return targets, nil
}

// targetsOf are a disk and its partitions.
func (n *Node) targetsOf(d disk) ([]target, error) {
	partitions, err := n.partitionsOf(d)
	if err != nil {
		return nil, err
	}
	return append([]target{wholeOf(d)}, partitions...), nil
}

// findDisk finds a volume's disk by its serial number. On an instance of Xen, whose disks
// have none, it finds the disk by the device name of the attachment.
func (n *Node) findDisk(w request) (*disk, error) {
	d, err := n.sys.withSerial(w.serial, n.options.Model)
	if d != nil || err != nil {
		return d, err
	}
	return n.findXen(w)
}

// xenDisk is the name of a disk of Xen in the guest.
var xenDisk = regexp.MustCompile(`^(?:xvd|sd)[a-z]+[0-9]*$`)

// findXen finds the disk in the slot of the device name that the attachment requested.
// The machine does not show which volume the disk is; only the controller's device name
// identifies it. So there must be one: in the request, or in an earlier request for the
// same appearance of the disk.
func (n *Node) findXen(w request) (*disk, error) {
	disks, err := n.sys.xenDisks()
	if err != nil || len(disks) == 0 {
		return nil, err
	}
	if w.devicePath == "" {
		return n.claimedXen(w.volumeID, disks)
	}
	// On Nitro the name is only a label; a disk with that name is another device.
	nitro, err := n.sys.hasModel(n.options.Model)
	if nitro || err != nil {
		return nil, err
	}
	requested, isName := slotOfName(w.devicePath)
	if !isName {
		return nil, fmt.Errorf("%w: %s of the attachment is %.64q; on this instance it is like /dev/xvdf",
			backend.ErrInvalid, nodelocal.DevicePathKey, w.devicePath)
	}
	for i := range disks {
		if disks[i].slot == requested {
			return &disks[i], nil
		}
	}
	return nil, nil
}

// claimedXen finds the disk of a volume that was opened before, if it is the same
// appearance of the disk.
func (n *Node) claimedXen(id string, disks []disk) (*disk, error) {
	claim, err := n.records.read(id, claimSuffix)
	if claim == nil || claim.Xen == "" || err != nil {
		return nil, err
	}
	for i, d := range disks {
		if d.name != claim.Xen || d.number != claim.Disk.Number {
			continue
		}
		now, err := n.appearanceOf(d)
		if err != nil || now != claim.Disk {
			return nil, ignoreChanged(err)
		}
		return &disks[i], nil
	}
	return nil, nil
}

// unchanged reports whether sysfs still has the target as it was found.
func (n *Node) unchanged(t target) (bool, error) {
	read := n.sys.nvme
	if t.disk.xen {
		read = n.sys.xen
	}
	now, err := read(t.disk.name)
	if err != nil || now == nil || *now != t.disk {
		return false, err
	}
	if t.index == 0 {
		return true, nil
	}
	number, err := n.sys.number(t.disk.name, t.name)
	return number == t.number, err
}
