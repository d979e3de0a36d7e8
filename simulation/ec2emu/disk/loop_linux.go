package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// Attach makes a volume appear in an instance, if it does not have it already.
func (d *Disks) Attach(a world.DeviceAttachment) error {
	if err := errors.Join(check(a.InstanceID), check(a.VolumeID)); err != nil {
		return err
	}
	if _, shown := d.guests[a.InstanceID][a.VolumeID]; shown {
		return nil
	}
	loop, err := d.loopOf(a.VolumeID)
	if err != nil {
		return fmt.Errorf("attach %s: %w", a.VolumeID, err)
	}
	if err := d.show(a, loop); err != nil {
		return fmt.Errorf("attach %s to %s: %w", a.VolumeID, a.InstanceID, err)
	}
	return nil
}

// loopOf is the volume's loop device, of which there is one for all instances.
func (d *Disks) loopOf(id string) (*blockdev.Loop, error) {
	if loop := d.loops[id]; loop != nil {
		return loop, nil
	}
	if err := d.noteIntent(id); err != nil {
		return nil, err
	}
	file, err := d.root.OpenFile(volumeFile(id), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	loop, err := adopt(file)
	if loop == nil && err == nil {
		// The kernel frees it with its last user, also when this process is killed.
		loop, err = blockdev.AttachLoop(context.Background(), blockdev.LoopConfig{
			File: file, Path: filepath.Join(d.dir, volumeFile(id)), AutoClear: true, Discard: true,
		})
	}
	if err != nil {
		return nil, err
	}
	d.loops[id] = loop
	return loop, nil
}

// adopt finds the device that a forced detach, or an earlier process, left in
// use: a second one for the same file would have another cache.
func adopt(file *os.File) (*blockdev.Loop, error) {
	found, err := blockdev.LoopsOf(file)
	if err != nil {
		return nil, err
	}
	for i := range found {
		err := found[i].Open()
		if errors.Is(err, backend.ErrNotFound) {
			continue // its last user closed it meanwhile
		}
		if err != nil {
			return nil, err
		}
		_, err = found[i].SetCapacity()
		return &found[i], err
	}
	return nil, nil
}

// Detach removes a volume from an instance. A mounted volume is busy, unless other
// instances have it too: then the mount may be theirs.
func (d *Disks) Detach(instanceID, volumeID string, force bool) error {
	if _, shown := d.guests[instanceID][volumeID]; !shown {
		return nil
	}
	last := d.viewers(volumeID) == 1
	if last && !force && mounted(d.loops[volumeID]) {
		return fmt.Errorf("detach %s from %s: %w", volumeID, instanceID, world.ErrDeviceBusy)
	}
	if err := d.hide(instanceID, volumeID); err != nil {
		return err
	}
	if !last {
		return nil
	}
	return d.release(volumeID)
}

// viewers counts the instances that have a volume.
func (d *Disks) viewers(volumeID string) int {
	n := 0
	for _, guests := range d.guests {
		if _, shown := guests[volumeID]; shown {
			n++
		}
	}
	return n
}

// mounted reports whether the device is open exclusively, as by a mount.
func mounted(loop *blockdev.Loop) bool {
	if loop == nil {
		return false
	}
	device, err := os.OpenFile(loop.Path, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		return errors.Is(err, unix.EBUSY)
	}
	_ = device.Close()
	return false
}

// release detaches a loop device. The kernel frees one in use after its last use;
// its intent stays until the device is freed.
func (d *Disks) release(volumeID string) error {
	loop := d.loops[volumeID]
	if loop == nil {
		return nil
	}
	delete(d.loops, volumeID)
	err := loop.Detach()
	if errors.Is(err, backend.ErrInUse) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.removeIntent(volumeID)
}

// freeLoops frees the devices of a volume that are not in use.
func (d *Disks) freeLoops(id string) (inUse bool, _ error) {
	if err := check(id); err != nil {
		return false, err
	}
	file, err := d.root.Open(volumeFile(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	found, err := blockdev.LoopsOf(file)
	if err != nil {
		return false, err
	}
	for i := range found {
		err := found[i].Detach()
		if errors.Is(err, backend.ErrInUse) {
			inUse = true
		} else if err != nil {
			return false, err
		}
	}
	return inUse, nil
}

// GrowVolume makes the file larger, and the device in every instance that has it.
func (d *Disks) GrowVolume(id string, size int32) error {
	if err := check(id); err != nil {
		return err
	}
	file, err := d.root.OpenFile(volumeFile(id), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("grow %s: %w", id, err)
	}
	defer func() { _ = file.Close() }()
	if err := growFile(file, size); err != nil {
		return fmt.Errorf("grow %s: %w", id, err)
	}
	loop := d.loops[id]
	if loop == nil {
		return nil
	}
	if _, err := loop.SetCapacity(); err != nil {
		return fmt.Errorf("grow %s: %w", id, err)
	}
	for instanceID, guests := range d.guests {
		if g, shown := guests[id]; shown {
			if err := d.showSize(instanceID, g, loop.Size); err != nil {
				return fmt.Errorf("grow %s: %w", id, err)
			}
		}
	}
	return nil
}

// growFile never makes a file smaller.
func growFile(file *os.File, size int32) error {
	info, err := file.Stat()
	if err != nil || info.Size() >= int64(size)*gibibyte {
		return err
	}
	return file.Truncate(int64(size) * gibibyte)
}

// freeIndex is the lowest free controller number of the instance.
func freeIndex(guests map[string]guest) int {
	var used []int
	for _, g := range guests {
		if !g.xen {
			used = append(used, g.index)
		}
	}
	index := 0
	for slices.Contains(used, index) {
		index++
	}
	return index
}
