package nodeside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
)

// Devices lists the volume's disk and its partitions.
func (n *Node) Devices(_ context.Context, id string) ([]backend.Device, error) {
	_, devices, err := n.present(id)
	return devices, err
}

// present finds the volume's disk, nil if this machine has none, and its devices, the
// disk first. It omits a device that disappears meanwhile.
func (n *Node) present(handle string) (*disk, []backend.Device, error) {
	id, err := n.volumeOf(handle)
	if err != nil || !volumeID.MatchString(id) {
		return nil, nil, err // only a valid volume ID has a device
	}
	serial, err := serialOf(id)
	if err != nil {
		return nil, nil, err
	}
	d, err := n.findDisk(request{volumeID: id, serial: serial})
	if d == nil || err != nil {
		return nil, nil, err
	}
	targets, err := n.targetsOf(*d)
	if err != nil {
		return nil, nil, err
	}
	var devices []backend.Device
	for _, t := range targets {
		device, err := n.describe(t)
		if errors.Is(err, errChanged) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		devices = append(devices, *device)
	}
	return d, devices, nil
}

// describe opens a target, describes it and closes it.
func (n *Node) describe(t target) (*backend.Device, error) {
	file, err := n.open(t)
	if err != nil {
		return nil, err
	}
	device, err := n.deviceOf(t, file)
	return device, errors.Join(err, file.Close())
}

// ResizeDevice returns the size of the disk. The kernel updates it when the volume grows
// (Linux 4.2). A partition keeps its size.
func (n *Node) ResizeDevice(_ context.Context, id string) (int64, error) {
	d, devices, err := n.present(id)
	if d == nil || len(devices) == 0 || err != nil {
		return 0, err
	}
	return devices[0].Size, nil
}

// CloseDevice fails if the disk is in use, and flushes it, because the controller is
// about to detach it and EC2 checks neither. The disk stays until then, writable for
// another driver.
func (n *Node) CloseDevice(_ context.Context, handle string) error {
	id, err := n.volumeOf(handle)
	if err != nil {
		return err
	}
	d, _, err := n.present(id)
	if err != nil {
		return err
	}
	if d != nil {
		if err := n.quiesce(*d); err != nil {
			return fmt.Errorf("close the device of volume %s: %w", id, err)
		}
	}
	n.mu.Lock()
	delete(n.opened, id)
	n.mu.Unlock()
	if !volumeID.MatchString(id) {
		return nil
	}
	if d == nil { // a mark is valid for one attachment only
		err = n.records.remove(id, markSuffix)
	}
	return errors.Join(err, n.records.remove(id, claimSuffix))
}

func (n *Node) quiesce(d disk) error {
	file, err := n.open(wholeOf(d))
	if err != nil {
		return ignoreChanged(err)
	}
	if err := errors.Join(n.flushUnused(file, d), file.Close()); err != nil {
		return err
	}
	targets, err := n.targetsOf(d)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if err := n.makeWritable(t); err != nil {
			return err
		}
	}
	return nil
}

// makeWritable sets a target that was opened read-only back to writable. It ignores a
// disk that cannot be writable.
func (n *Node) makeWritable(t target) error {
	file, err := n.open(t)
	if err != nil {
		return ignoreChanged(err)
	}
	defer func() { _ = file.Close() }()
	readOnly, err := blockdev.IsReadOnly(file)
	if err == nil && readOnly {
		err = blockdev.SetReadOnly(file, false)
	}
	if errors.Is(err, backend.ErrPrecondition) || gone(err) {
		return nil
	}
	return err
}

// flushUnused opens the disk exclusively and flushes it. The open fails while the disk or
// a partition of it is mounted in any mount namespace (bd_prepare_to_claim, block/bdev.c).
// The caller's descriptor pins the number.
func (n *Node) flushUnused(pinned *os.File, d disk) error {
	alone, err := os.OpenFile(filepath.Join(n.options.DevRoot, d.name), os.O_RDONLY|unix.O_EXCL|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: disk %s is mounted somewhere on this machine, maybe in another container (grep %s /proc/*/mounts), or is part of another device (lsblk /dev/%s)",
			backend.ErrInUse, d.name, d.name, d.name)
	case gone(err):
		return nil
	case err != nil:
		return err
	}
	number, err := blockdev.Number(alone)
	if err == nil && number == d.number {
		err = pinned.Sync()
		if gone(err) || errors.Is(err, unix.EIO) {
			n.options.Logger.Error("flush of a disk failed; the last writes to it may be lost",
				"disk", d.name, "error", err)
			err = nil
		}
	}
	return errors.Join(err, alone.Close())
}

func ignoreChanged(err error) error {
	if errors.Is(err, errChanged) {
		return nil
	}
	return err
}
