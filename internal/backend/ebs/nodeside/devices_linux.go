package nodeside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node/blockdev"
)

// Devices lists the volume's disk, its partitions, and the read-only devices
// over each.
func (n *Node) Devices(_ context.Context, id string) ([]backend.Device, error) {
	_, devices, err := n.present(id)
	return devices, err
}

// present finds the volume's disk, nil when it is not there, and its devices,
// the disk first. A device that goes away meanwhile is left out.
func (n *Node) present(id string) (*disk, []backend.Device, error) {
	if !volumeID.MatchString(id) {
		return nil, nil, nil // what has no ID of EBS has no device
	}
	serial, err := serialOf(id)
	if err != nil {
		return nil, nil, err
	}
	d, err := n.findDisk(wish{volumeID: id, serial: serial})
	if d == nil || err != nil {
		return nil, nil, err
	}
	partitions, err := n.partitionsOf(*d)
	if err != nil {
		return nil, nil, err
	}
	var devices []backend.Device
	for _, t := range append([]target{wholeOf(*d)}, partitions...) {
		found, err := n.describe(t)
		if err := ignoreChanged(err); err != nil {
			return nil, nil, err
		}
		devices = append(devices, found...)
	}
	return d, devices, nil
}

// describe opens a target for a moment.
func (n *Node) describe(t target) ([]backend.Device, error) {
	file, err := n.open(t)
	if err != nil {
		return nil, err
	}
	device, err := n.deviceOf(t, file)
	var loops []blockdev.Loop
	if err == nil {
		loops, err = blockdev.LoopsOf(file)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	devices := []backend.Device{*device}
	for i := range loops {
		devices = append(devices, loopDevice(&loops[i]))
	}
	return devices, nil
}

// ResizeDevice makes read-only devices as large as the disk, and tells its size:
// the disk itself follows the volume without help (Linux 4.2). A partition stays
// as it is.
func (n *Node) ResizeDevice(_ context.Context, id string) (int64, error) {
	d, devices, err := n.present(id)
	if d == nil || len(devices) == 0 || err != nil {
		return 0, err
	}
	partitions, err := n.partitionsOf(*d)
	if err != nil {
		return 0, err
	}
	for _, t := range append([]target{wholeOf(*d)}, partitions...) {
		if err := n.eachLoop(t, func(l *blockdev.Loop) error { _, err := l.SetCapacity(); return err }); err != nil {
			return 0, fmt.Errorf("resize the read-only device of volume %s: %w", id, err)
		}
	}
	return devices[0].Size, nil
}

// eachLoop does something with each read-only device over a target.
func (n *Node) eachLoop(t target, do func(*blockdev.Loop) error) error {
	file, err := n.open(t)
	if err != nil {
		return ignoreChanged(err)
	}
	loops, err := blockdev.LoopsOf(file)
	failed := []error{err, file.Close()}
	for i := range loops {
		if err := do(&loops[i]); !errors.Is(err, backend.ErrNotFound) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// CloseDevice removes the read-only devices, and makes sure that nothing uses
// the disk any more and that all of it is written: the controller is about to
// detach it, which takes no notice of either. The disk itself stays until then.
func (n *Node) CloseDevice(_ context.Context, id string) error {
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
	if d == nil { // a mark is of no use to another attachment
		err = n.records.remove(id, markSuffix)
	}
	return errors.Join(err, n.records.remove(id, claimSuffix))
}

func (n *Node) quiesce(d disk) error {
	partitions, err := n.partitionsOf(d)
	if err != nil {
		return err
	}
	for _, t := range append(partitions, wholeOf(d)) {
		if err := n.eachLoop(t, (*blockdev.Loop).Detach); err != nil {
			return err
		}
	}
	file, err := n.open(wholeOf(d))
	if err != nil {
		return ignoreChanged(err)
	}
	return errors.Join(n.settleDisk(file, d), file.Close())
}

// settleDisk opens the disk exclusively, which fails while it, or a partition of
// it, is mounted anywhere, in whatever mount namespace (bd_prepare_to_claim,
// block/bdev.c). The number is pinned by the caller's descriptor.
func (n *Node) settleDisk(pinned *os.File, d disk) error {
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
			n.options.Logger.Error("what was written to a disk last may be lost: it could not be flushed", "disk", d.name, "error", err)
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
