// Package blockdev deals with block devices of this machine: it attaches files
// as loop devices and identifies the content of devices. Backends use it to make
// devices, the node engine to decide whether it may format them. It changes no content
// of any device.
//
// Signatures are read by code of our own. The alternative that needs no process,
// github.com/siderolabs/go-blockdevice/v2 (blkid, v2.0.20), knows no btrfs, no
// ntfs and no RAID member, and checks neither checksums nor the error state of
// an ext filesystem; for us each of these decides between mounting, checking,
// formatting and leaving alone.
package blockdev
