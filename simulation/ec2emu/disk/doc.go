// Package disk makes the volumes of package world real: sparse files as their
// data, loop devices when they are attached, and for each instance a directory
// with what its guest would find in /sys and /dev. Package ec2emu gives it to
// the world as world.Devices; tests of the node half read what it shows.
//
// Below its directory:
//
//	volumes/vol-….img                    data of volumes
//	snapshots/snap-….img                 data of snapshots
//	devices.json                         volumes that may have a loop device of ours
//	instances/i-…/sys/block/nvme1n1/     as sysfs of a Nitro guest: dev, size, device/serial, …
//	instances/i-…/sys/class/nvme/nvme1/
//	instances/i-…/dev/nvme1n1            a node with the loop device's number
//
// A guest of a Xen type finds the requested name instead, without a serial
// number: sys/block/xvdba, dev/xvdba.
//
// What appears is complete before its node is made, and the node is the first
// to go. Loop devices are the kernel's to free when their last user is gone,
// also when the process is killed; those still in use then are recorded, found
// again and freed by the next process that opens the directory.
//
// It needs root on Linux. Snapshots and copies share blocks where the
// filesystem can (FICLONE) and are then of one moment; elsewhere they are
// copied, again if the volume was written to meanwhile. Partitions of a volume
// do not appear.
package disk

// Model is what a guest finds as the model of an EBS volume's controller.
const Model = "Amazon Elastic Block Store"

const gibibyte = 1 << 30
