package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

const sysfsSector = 512 // sizes in sysfs are in these units

// AddInstance makes the instance's /sys and /dev, empty.
func (d *Disks) AddInstance(id string) error {
	if err := check(id); err != nil {
		return err
	}
	for _, name := range []string{"sys/block", "sys/class/nvme", "sys/dev/block", "dev"} {
		if err := d.root.MkdirAll(filepath.Join(instancesDir, id, name), 0o755); err != nil {
			return fmt.Errorf("add %s: %w", id, err)
		}
	}
	return nil
}

// RemoveInstance removes all devices of the instance and its directory.
func (d *Disks) RemoveInstance(id string) error {
	if err := check(id); err != nil {
		return err
	}
	var all []error
	for volumeID := range d.guests[id] {
		all = append(all, d.Detach(id, volumeID, true))
	}
	delete(d.guests, id)
	return errors.Join(append(all, d.root.RemoveAll(filepath.Join(instancesDir, id)))...)
}

// show makes a device appear: its files in sysfs, then its node.
func (d *Disks) show(a world.DeviceAttachment, loop *blockdev.Loop) error {
	if err := d.AddInstance(a.InstanceID); err != nil {
		return err
	}
	guests := d.guests[a.InstanceID]
	if guests == nil {
		guests = map[string]guest{}
		d.guests[a.InstanceID] = guests
	}
	g := guest{index: freeIndex(guests), xen: a.Xen}
	g.name = fmt.Sprintf("nvme%dn1", g.index)
	if a.Xen {
		g.name = xenName(a.Name)
	}
	guests[a.VolumeID] = g // hide removes the parts that exist
	err := d.showSysfs(a, g, loop)
	if err == nil {
		node := filepath.Join(d.dir, instancesDir, a.InstanceID, "dev", g.name)
		err = unix.Mknod(node, unix.S_IFBLK|0o660, int(loop.Number))
	}
	if err != nil {
		return errors.Join(err, d.hide(a.InstanceID, a.VolumeID))
	}
	return nil
}

// xenName is the name that a Xen guest has for /dev/sdf or /dev/xvdf: xvdf.
func xenName(requested string) string {
	name := filepath.Base(requested)
	if rest, isSD := strings.CutPrefix(name, "sd"); isSD {
		return "xvd" + rest
	}
	return name
}

// xenNode is the node in xenstore of the disk with a guest's name: the number
// of a virtual disk has bit 28, its letters and its partition
// (xen-vbd-interface(7)).
func xenNode(name string) string {
	letters := strings.TrimPrefix(strings.TrimRight(name, "0123456789"), "xvd")
	part, _ := strconv.Atoi(strings.TrimLeft(strings.TrimPrefix(name, "xvd"), "abcdefghijklmnopqrstuvwxyz"))
	disk := -1
	for _, letter := range letters {
		disk = (disk+1)*26 + int(letter-'a')
	}
	return fmt.Sprintf("device/vbd/%d", 1<<28|disk<<8|part)
}

// showSysfs writes the device's directory under a temporary name and renames it,
// so that a reader finds all of it or none.
func (d *Disks) showSysfs(a world.DeviceAttachment, g guest, loop *blockdev.Loop) error {
	sys := filepath.Join(instancesDir, a.InstanceID, "sys")
	number := fmt.Sprintf("%d:%d", unix.Major(loop.Number), unix.Minor(loop.Number))
	files := map[string]string{
		"dev": number, "size": strconv.FormatInt(loop.Size/sysfsSector, 10), "ro": "0", "removable": "0",
		"uevent": fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=%s\nDEVTYPE=disk",
			unix.Major(loop.Number), unix.Minor(loop.Number), g.name),

		"queue/logical_block_size": strconv.Itoa(loop.SectorSize), "queue/rotational": "0",
	}
	if g.xen {
		files["device/devtype"], files["device/nodename"] = "vbd", xenNode(g.name)
	} else {
		files["nsid"] = "1"
		for name, value := range controller(a.VolumeID) {
			files["device/"+name] = value
		}
		if err := d.writeTree(filepath.Join(sys, "class/nvme", "nvme"+strconv.Itoa(g.index)),
			controller(a.VolumeID)); err != nil {
			return err
		}
	}
	if err := d.writeTree(filepath.Join(sys, "block", g.name), files); err != nil {
		return err
	}
	link := filepath.Join(sys, "dev/block", number)
	if err := d.root.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.root.Symlink("../../block/"+g.name, link)
}

// controller has the files of an NVMe controller in sysfs. Serial number and model are
// padded with spaces to 20 and 40 bytes, as those of the device.
func controller(volumeID string) map[string]string {
	return map[string]string{
		"serial": fmt.Sprintf("%-20s", strings.Replace(volumeID, "-", "", 1)), "model": fmt.Sprintf("%-40s", Model),
		"transport": "pcie", "state": "live", "firmware_rev": fmt.Sprintf("%-8s", "1.0"),
	}
}

// writeTree makes a directory with these files appear at once.
func (d *Disks) writeTree(path string, files map[string]string) error {
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := d.root.RemoveAll(temp); err != nil {
		return err
	}
	for name, value := range files {
		path := filepath.Join(temp, name)
		if err := d.root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := d.root.WriteFile(path, []byte(value+"\n"), 0o444); err != nil {
			return err
		}
	}
	if err := d.root.RemoveAll(path); err != nil {
		return err
	}
	return d.root.Rename(temp, path)
}

// showSize replaces the size in sysfs.
func (d *Disks) showSize(instanceID string, g guest, bytes int64) error {
	path := filepath.Join(instancesDir, instanceID, "sys/block", g.name, "size")
	temp := path + ".new"
	if err := d.root.WriteFile(temp, []byte(strconv.FormatInt(bytes/sysfsSector, 10)+"\n"), 0o444); err != nil {
		return err
	}
	return d.root.Rename(temp, path)
}

// hide undoes show: it removes the node first, and all of sysfs at once.
func (d *Disks) hide(instanceID, volumeID string) error {
	g, shown := d.guests[instanceID][volumeID]
	if !shown {
		return nil
	}
	base := filepath.Join(instancesDir, instanceID)
	if err := d.root.Remove(filepath.Join(base, "dev", g.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("hide %s from %s: %w", volumeID, instanceID, err)
	}
	paths := []string{filepath.Join(base, "sys/block", g.name)}
	if !g.xen {
		paths = append(paths, filepath.Join(base, "sys/class/nvme", "nvme"+strconv.Itoa(g.index)))
	}
	if loop := d.loops[volumeID]; loop != nil {
		paths = append(paths, filepath.Join(base, "sys/dev/block",
			fmt.Sprintf("%d:%d", unix.Major(loop.Number), unix.Minor(loop.Number))))
	}
	for _, path := range paths {
		if err := d.vanish(path); err != nil {
			return fmt.Errorf("hide %s from %s: %w", volumeID, instanceID, err)
		}
	}
	delete(d.guests[instanceID], volumeID)
	return nil
}

// vanish renames before it removes, so that a reader finds all of it or none.
func (d *Disks) vanish(path string) error {
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := d.root.RemoveAll(temp); err != nil {
		return err
	}
	if err := d.root.Rename(path, temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.root.RemoveAll(temp)
}
