package nodeside

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// idleGrace is how long a disk without a user, whose device name can be one that
// a driver gave, is taken for a volume of the driver that has just been attached,
// or is about to be detached.
const idleGrace = 5 * time.Minute

// driversName matches the device names that this driver and the AWS EBS CSI
// driver give first. People and the boot give names of one letter.
var driversName = regexp.MustCompile(`^(/dev/)?xvd[a-d][a-z]$`)

// idleDisk is a disk that had no user when it was counted last.
type idleDisk struct {
	since time.Time
	ours  bool // by its device name; true if that is not known
}

// csiMounts is where, below the kubelet's directory, all CSI drivers' volumes
// are staged, those that another driver than this process staged included.
const csiMounts = "/plugins/kubernetes.io/csi/"

// foreignDisks counts the EBS volumes that are attached and not the driver's:
// the root volume, and those that were attached by other means. What IMDS
// has in its block device mapping does not help: it is as of the instance's start,
// so it lacks what came later and has what the driver had attached before a reboot.
func (n *Node) foreignDisks(now time.Time) (int, error) {
	disks, err := n.ebsDisks()
	if err != nil {
		return 0, err
	}
	ours, err := n.records.claimed()
	if err != nil {
		return 0, err
	}
	table, err := mount.Table()
	if err != nil {
		return 0, err
	}
	foreign, seen := 0, map[uint64]idleDisk{}
	for _, d := range disks {
		inCSI, elsewhere, err := n.usesOf(d, table)
		if err != nil {
			return 0, err
		}
		if inCSI || ours[idOf(d.serial)] || n.claimsXen(d, ours) {
			continue
		}
		if elsewhere || n.idleForeign(d, seen, now) {
			foreign++
		}
	}
	n.mu.Lock()
	n.idle = seen
	n.mu.Unlock()
	return foreign, nil
}

// ebsDisks are all that can be EBS volumes.
func (n *Node) ebsDisks() ([]disk, error) {
	all, err := n.sys.nvmeDisks()
	if err != nil {
		return nil, err
	}
	var disks []disk
	for _, d := range all {
		if idOf(d.serial) != "" && d.accept(n.options.Model) == nil {
			disks = append(disks, d)
		}
	}
	xen, err := n.sys.xenDisks()
	return append(disks, xen...), err
}

// claimsXen reports whether a disk of Xen is one that the driver has opened.
func (n *Node) claimsXen(d disk, ours map[string]bool) bool {
	if !d.xen {
		return false
	}
	for id := range ours {
		if claim, err := n.records.read(id, claimSuffix); err == nil && claim != nil && claim.Xen == d.name && claim.Disk.Number == d.number {
			return true
		}
	}
	return false
}

// usesOf returns where a disk or a partition of it is used: as a CSI volume, or in
// another way (a mount, or a device such as LVM's over it).
func (n *Node) usesOf(d disk, table []*mountinfo.Info) (inCSI, elsewhere bool, err error) {
	partitions, err := n.partitionsOf(d)
	if err != nil {
		return false, false, err
	}
	for _, t := range append(partitions, wholeOf(d)) {
		for _, m := range append(mount.OfDevice(table, t.number), mount.OfNode(table, t.name, t.number)...) {
			if strings.Contains(m.Mountpoint+"/", csiMounts) {
				inCSI = true
			} else {
				elsewhere = true
			}
		}
		elsewhere = elsewhere || n.isHeld(t)
	}
	return inCSI, elsewhere, nil
}

// isHeld reports whether another device is made of a target, or the system swaps
// to it.
func (n *Node) isHeld(t target) bool {
	path := n.sys.path(t.disk.name, "holders")
	if t.index != 0 {
		path = n.sys.path(t.disk.name, t.name, "holders")
	}
	if holders, err := os.ReadDir(path); err == nil && len(holders) > 0 {
		return true
	}
	swaps, err := os.ReadFile("/proc/swaps")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(swaps)) {
		name, _, _ := strings.Cut(line, " ")
		var stat unix.Stat_t
		if filepath.Base(name) == t.name && unix.Stat(name, &stat) == nil && uint64(stat.Rdev) == t.number {
			return true
		}
	}
	return false
}

// idleForeign reports whether a disk without a user is not the driver's: by its
// device name, or since it has had none for long.
func (n *Node) idleForeign(d disk, seen map[uint64]idleDisk, now time.Time) bool {
	n.mu.Lock()
	idle, known := n.idle[d.number]
	n.mu.Unlock()
	if !known {
		idle = idleDisk{since: now, ours: n.namedByDriver(d)}
	}
	seen[d.number] = idle
	return !idle.ours || now.Sub(idle.since) >= idleGrace
}

// namedByDriver reports whether a disk was attached under a name that drivers give.
// It is true for a disk that does not report its name.
func (n *Node) namedByDriver(d disk) bool {
	if d.xen {
		return driversName.MatchString(d.name)
	}
	file, err := n.open(wholeOf(d))
	if err != nil {
		return true
	}
	name, err := n.deviceName(file)
	if closed := file.Close(); closed != nil {
		n.options.Logger.Warn("a disk was not closed", "disk", d.name, "error", closed)
	}
	return err != nil || name == "" || driversName.MatchString(name)
}
