// Package blockdev deals with block devices of this machine: it attaches files
// as loop devices and tells what a device holds. Backends use it to make
// devices, the node engine to decide what may be done to them. It changes no
// content of any device.
package blockdev
