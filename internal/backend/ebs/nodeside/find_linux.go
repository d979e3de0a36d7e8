package nodeside

import (
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// target is what a request means on this machine: a disk or a partition of it.
type target struct {
	disk   disk
	index  int // of the partition; 0 is the whole disk
	name   string
	number uint64
}

// find looks for the target of a request; nil when it is not there (yet).
func (n *Node) find(w wish) (*target, error) {
	d, err := n.findDisk(w)
	if d == nil || err != nil {
		return nil, err
	}
	if w.partition == 0 {
		return &target{disk: *d, name: d.name, number: d.number}, nil
	}
	partitions, err := n.sys.partitions(d.name)
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		if p.index == w.partition {
			return &target{disk: *d, index: p.index, name: p.name, number: p.number}, nil
		}
	}
	if len(partitions) > 0 {
		return nil, fmt.Errorf("%w: volume %s has no partition %d (disk %s has %d); change the volume attribute %s",
			backend.ErrPrecondition, w.volumeID, w.partition, d.name, len(partitions), keyPartition)
	}
	return nil, nil // the kernel may still be reading the table
}

// findDisk looks for a volume's disk.
func (n *Node) findDisk(w wish) (*disk, error) {
	return n.sys.withSerial(w.serial, n.options.Model)
}

// again tells whether sysfs still has the target as it was found.
func (n *Node) again(t target) (bool, error) {
	now, err := n.sys.nvme(t.disk.name)
	if err != nil || now == nil || *now != t.disk {
		return false, err
	}
	if t.index == 0 {
		return true, nil
	}
	number, err := n.sys.number(t.disk.name, t.name)
	return number == t.number, err
}
