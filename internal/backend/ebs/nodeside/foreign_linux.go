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

// idleGrace is how long an unused disk, whose device name can be one of a driver, is
// treated as a volume of the driver that was just attached or is about to be detached.
const idleGrace = 5 * time.Minute

// driversName matches the device names that this driver and the AWS EBS CSI driver use
// first. Administrators and launch templates usually choose names of one letter.
var driversName = regexp.MustCompile(`^(/dev/)?xvd[a-d][a-z]$`)

// idleDisk is a disk that was not in use at the last count.
type idleDisk struct {
	since  time.Time
	driver bool // its device name is one of a driver, or unknown
}

// csiMounts is the part of a path below the kubelet's directory at which all CSI drivers
// stage volumes.
const csiMounts = "/plugins/kubernetes.io/csi/"

// foreignDisks counts the attached EBS volumes that are not the driver's: the root
// volume, and those that others attached. The block device mapping of IMDS cannot be
// used: it is from the instance's start, so it lacks later volumes and has those that the
// driver had attached before a reboot.
func (n *Node) foreignDisks(now time.Time) (int, error) {
	disks, err := n.ebsDisks()
	if err != nil {
		return 0, err
	}
	claimed, err := n.records.claimed()
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
		if inCSI || claimed[idOf(d.serial)] || n.claimsXen(d, claimed) {
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

// ebsDisks are the disks that can be EBS volumes.
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
func (n *Node) claimsXen(d disk, claimed map[string]bool) bool {
	if !d.xen {
		return false
	}
	for id := range claimed {
		claim, err := n.records.read(id, claimSuffix)
		if err == nil && claim != nil && claim.Xen == d.name && claim.Disk.Number == d.number {
			return true
		}
	}
	return false
}

// usesOf reports whether a disk or a partition of it is mounted as a CSI volume, or used
// in another way: by another mount, or by a device on top of it such as LVM's.
func (n *Node) usesOf(d disk, table []*mountinfo.Info) (inCSI, elsewhere bool, err error) {
	targets, err := n.targetsOf(d)
	for _, t := range targets {
		for _, point := range t.mountPoints(table) {
			inCSI = inCSI || strings.Contains(point+"/", csiMounts)
			elsewhere = elsewhere || !strings.Contains(point+"/", csiMounts)
		}
		elsewhere = elsewhere || n.isHeld(t)
	}
	return inCSI, elsewhere, err
}

// mountPoints are the mount points of a target's filesystem and of its device node.
func (t target) mountPoints(table []*mountinfo.Info) []string {
	var points []string
	for _, m := range append(mount.OfDevice(table, t.number), mount.OfNode(table, t.name, t.number)...) {
		points = append(points, m.Mountpoint)
	}
	return points
}

// isHeld reports whether another device uses a target, or the system swaps to it.
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

// idleForeign reports whether an unused disk is not the driver's: by its device name, or
// because it has not been used for idleGrace.
func (n *Node) idleForeign(d disk, seen map[uint64]idleDisk, now time.Time) bool {
	n.mu.Lock()
	idle, known := n.idle[d.number]
	n.mu.Unlock()
	if !known {
		idle = idleDisk{since: now, driver: n.namedByDriver(d)}
	}
	seen[d.number] = idle
	return !idle.driver || now.Sub(idle.since) >= idleGrace
}

// namedByDriver reports whether a disk was attached under a device name of a driver. It
// is true for a disk that does not report its name.
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
