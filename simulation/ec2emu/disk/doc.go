// Package disk implements the data and devices of the volumes of package world: sparse
// files, loop devices when they are attached, and for each instance a directory with the
// files that its guest would have in /sys and /dev. It implements world.Devices; tests of
// the node half read the directories.
//
// Below its directory:
//
//	volumes/vol-….img                    data of volumes
//	snapshots/snap-….img                 data of snapshots
//	devices.json                         volumes that may have a loop device of this process
//	instances/i-…/sys/block/nvme1n1/     as sysfs of a Nitro guest: dev, size, device/serial, …
//	instances/i-…/sys/class/nvme/nvme1/
//	instances/i-…/dev/nvme1n1            a node with the loop device's number
//
// A guest of a Xen type has the requested name instead, without a serial number:
// sys/block/xvdba, dev/xvdba.
//
// The device node is created last and removed first, so that a device with a node is
// complete. The kernel frees a loop device after its last use, also if the process is
// killed. The intents name the loop devices that were in use then; the next process that
// opens the directory frees them.
//
// It needs root on Linux. If the filesystem can share blocks (FICLONE), snapshots and
// copies do, and have one point in time; otherwise the data is copied, again if the volume
// was written to meanwhile. Partitions of a volume do not appear.
package disk

// Model is the model of an EBS volume's controller in a guest.
const Model = "Amazon Elastic Block Store"

const gibibyte = 1 << 30
