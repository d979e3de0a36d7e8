package windows

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// errNoSuchDevice is ERROR_NO_SUCH_DEVICE: the answer of a handle of a disk that
// was pulled out.
const errNoSuchDevice win32.Errno = 433

// device is an open disk, or an open volume.
type device struct {
	c      *client
	disk   *disk
	volume *volume // nil for a disk
	access win32.Access
	id     int // the arrival of the disk that was opened
}

type deviceCalls struct{ c *client }

// Interfaces implements win32.Devices.
func (d deviceCalls) Interfaces() ([]string, error) {
	return invoke(context.Background(), d.c, Call{Name: "Devices.Interfaces"}, func() ([]string, error) {
		var paths []string
		for _, disk := range d.c.m.disks {
			if disk.present {
				paths = append(paths, disk.path)
			}
		}
		return paths, nil
	})
}

// Numbers implements win32.Devices.
func (d deviceCalls) Numbers() ([]uint32, error) {
	return invoke(context.Background(), d.c, Call{Name: "Devices.Numbers"}, func() ([]uint32, error) {
		var numbers []uint32
		for _, disk := range d.c.m.disks {
			if disk.present {
				numbers = append(numbers, disk.number)
			}
		}
		return numbers, nil
	})
}

// OpenInterface implements win32.Devices.
func (d deviceCalls) OpenInterface(path string, access win32.Access) (win32.Device, error) {
	return d.open("Devices.OpenInterface", path, access, func(disk *disk) bool { return strings.EqualFold(disk.path, path) })
}

// OpenDisk implements win32.Devices.
func (d deviceCalls) OpenDisk(number uint32, access win32.Access) (win32.Device, error) {
	return d.open("Devices.OpenDisk", "", access, func(disk *disk) bool { return disk.number == number })
}

func (d deviceCalls) open(name, path string, access win32.Access, is func(*disk) bool) (win32.Device, error) {
	find := func() *disk {
		i := slices.IndexFunc(d.c.m.disks, func(disk *disk) bool { return disk.present && is(disk) })
		if i < 0 {
			return nil
		}
		return d.c.m.disks[i]
	}
	call := Call{Name: name, Targets: []string{path}, opens: true}
	d.c.m.mu.Lock()
	if disk := find(); disk != nil {
		call.Targets = append(disk.targets(), path)
	}
	d.c.m.mu.Unlock()
	return invoke(context.Background(), d.c, call, func() (win32.Device, error) {
		disk := find()
		switch {
		case disk == nil:
			return nil, win32.ErrorFileNotFound
		case disk.spec.Broken != 0:
			return nil, disk.spec.Broken
		}
		h := &device{c: d.c, disk: disk, access: access, id: disk.arrival}
		d.c.opened(h)
		return h, nil
	})
}

// Reenumerate implements win32.Devices.
func (d deviceCalls) Reenumerate() error {
	return do(context.Background(), d.c, Call{Name: "Devices.Reenumerate"}, func() error {
		d.c.m.rescan()
		return nil
	})
}

// rescan lets Windows see the disks that it does not see by itself. It does not
// read the sizes of those that it knows.
func (m *Machine) rescan() {
	for _, d := range m.disks {
		d.waiting = false
	}
	m.advance()
}

func (d *device) release() {
	if d.volume != nil {
		delete(d.volume.devices, d)
		if d.volume.lock == d {
			d.volume.lock = nil
		}
	}
}

// Close implements win32.Device.
func (d *device) Close() error { return d.c.closed(d) }

// use makes a call on the handle.
func (d *device) use(call Call, effect func() (int, error)) (int, error) {
	d.c.m.mu.Lock()
	call.Targets = d.disk.targets()
	if d.volume != nil {
		call.Targets = append([]string{d.volume.name}, call.Targets...)
	}
	d.c.m.mu.Unlock()
	return invoke(context.Background(), d.c, call, func() (int, error) {
		if _, open := d.c.handles[d]; !open {
			return 0, win32.ErrorInvalidHandle
		}
		if !d.disk.present || d.id != d.disk.arrival || d.volume != nil && d.volume.gone {
			return 0, errNoSuchDevice
		}
		return effect()
	})
}

// ReadAt implements win32.Device: whole sectors only (CreateFile, "Physical Disks
// and Volumes"), and only for a handle that may read.
func (d *device) ReadAt(p []byte, offset int64) (int, error) {
	return d.use(Call{Name: "Device.ReadAt"}, func() (int, error) {
		start, end := int64(0), d.disk.known
		if d.volume != nil {
			start, end = d.volume.partition.Offset, d.volume.partition.Length
		}
		switch {
		case d.access == win32.Query, d.volume != nil && d.volume.lockedFor(d):
			return 0, win32.ErrorAccessDenied
		case offset < 0 || offset%d.disk.sector != 0 || int64(len(p))%d.disk.sector != 0:
			return 0, win32.ErrorInvalidParameter
		case offset >= end && len(p) > 0:
			return 0, win32.ErrorSectorNotFound
		}
		p = p[:min(int64(len(p)), end-offset)]
		d.disk.data.read(p, start+offset)
		return len(p), nil
	})
}

// Flush implements win32.Device.
func (d *device) Flush() error {
	_, err := d.use(Call{Name: "Device.Flush", Changes: true}, func() (int, error) {
		if d.access != win32.ReadWrite {
			return 0, win32.ErrorAccessDenied
		}
		if d.volume != nil && d.volume.lockedFor(d) {
			return 0, win32.ErrorAccessDenied
		}
		if d.volume != nil {
			d.volume.flush()
		}
		return 0, nil
	})
	return err
}

// changing are the control codes that change something.
var changing = []win32.ControlCode{
	win32.IoctlSCSIRescanBus, win32.IoctlDiskUpdateProperties, win32.IoctlDiskUpdateDriveSize,
	win32.IoctlDiskSetDriveLayoutEx, win32.IoctlDiskCreateDisk,
	win32.IoctlDiskGrowPartition, win32.IoctlDiskSetDiskAttributes, win32.IoctlVolumeOnline, win32.IoctlVolumeOffline,
	win32.FsctlLockVolume, win32.FsctlUnlockVolume, win32.FsctlDismountVolume, win32.FsctlExtendVolume,
	win32.FsctlSetReparsePoint, win32.FsctlDeleteReparsePoint,
}

// Control implements win32.Device.
func (d *device) Control(code win32.ControlCode, in, out []byte) (int, error) {
	return d.use(Call{Name: code.String(), Changes: slices.Contains(changing, code)}, func() (int, error) {
		if !d.may(code) {
			return 0, win32.ErrorAccessDenied
		}
		if d.volume != nil {
			return d.volumeControl(code, in, out)
		}
		return d.diskControl(code, in, out)
	})
}

// may reports whether the handle has the access that the code itself names in its
// bits 14 and 15 (CTL_CODE: 1 read, 2 write), which the I/O manager checks.
// Locking, dismounting and extending need write access although their codes do not.
func (d *device) may(code win32.ControlCode) bool {
	needs := code >> 14 & 3
	if slices.Contains([]win32.ControlCode{win32.FsctlLockVolume, win32.FsctlDismountVolume, win32.FsctlExtendVolume},
		code) {
		needs = 3
	}
	return d.access == win32.ReadWrite || needs == 0 || needs == 1 && d.access == win32.Read
}

// diskControl is DeviceIoControl on a disk.
func (d *device) diskControl(code win32.ControlCode, in, out []byte) (int, error) {
	disk := d.disk
	switch code {
	case win32.IoctlStorageCheckVerify2:
		return 0, nil
	case win32.IoctlStorageGetDeviceNumber:
		return whole(out, win32.DeviceNumber{Type: win32.DeviceTypeDisk, Number: disk.number}.Encode())
	case win32.IoctlStorageQueryProperty:
		return disk.queryProperty(in, out)
	case win32.IoctlSCSIGetAddress:
		return d.address(out)
	case win32.IoctlSCSIRescanBus:
		d.c.m.rescan()
		return 0, nil
	case win32.IoctlDiskGetLengthInfo:
		return whole(out, win32.LengthInfo{Length: disk.known}.Encode())
	case win32.IoctlDiskGetDriveGeometryEx:
		return whole(out, disk.geometry().Encode())
	case win32.IoctlDiskUpdateDriveSize:
		geometry, err := d.c.m.updateDriveSize(disk)
		if err != nil {
			return 0, err
		}
		return whole(out, geometry.Encode()[:win32.DiskGeometrySize])
	case win32.IoctlDiskGetDriveLayoutEx:
		return whole(out, disk.layout().Encode())
	case win32.IoctlDiskGetDiskAttributes:
		return whole(out, win32.GetDiskAttributes{Attributes: disk.attributes}.Encode())
	case win32.IoctlDiskIsWritable:
		if disk.readOnly() {
			return 0, win32.ErrorWriteProtect
		}
		return 0, nil
	}
	return 0, d.c.m.changeDisk(disk, code, in)
}

// changeDisk are the control codes without an answer.
func (m *Machine) changeDisk(d *disk, code win32.ControlCode, in []byte) error {
	switch code {
	case win32.IoctlDiskUpdateProperties:
		m.update(d)
		return nil
	case win32.IoctlDiskSetDiskAttributes:
		request, err := win32.DecodeSetDiskAttributes(in)
		if err != nil {
			return lengthOr(in, 40, win32.ErrorInvalidParameter)
		}
		return m.setAttributes(d, request)
	case win32.IoctlDiskCreateDisk:
		request, err := win32.DecodeCreateDisk(in)
		if err != nil {
			return win32.ErrorBadLength
		}
		return m.createTable(d, request)
	case win32.IoctlDiskSetDriveLayoutEx:
		request, err := win32.DecodeDriveLayout(in)
		if err != nil {
			return win32.ErrorBadLength
		}
		return m.setLayout(d, request)
	case win32.IoctlDiskGrowPartition:
		request, err := win32.DecodeGrowPartition(in)
		if err != nil {
			return win32.ErrorBadLength
		}
		return m.growPartition(d, request)
	}
	return win32.ErrorInvalidFunction
}

// lengthOr is ERROR_BAD_LENGTH for too few bytes, else the given error.
func lengthOr(in []byte, size int, otherwise win32.Errno) error {
	if len(in) < size {
		return win32.ErrorBadLength
	}
	return otherwise
}

// setAttributes takes a disk online or offline, and read-only on or off. Going
// offline always succeeds and pulls the volumes away, but for the disk that
// Windows runs from.
func (m *Machine) setAttributes(d *disk, request win32.SetDiskAttributes) error {
	const all = win32.DiskAttributeOffline | win32.DiskAttributeReadOnly
	if request.Mask == 0 || request.Mask&^all != 0 || request.Attributes&^request.Mask != 0 {
		return win32.ErrorInvalidParameter
	}
	if d.system && request.Attributes != 0 {
		return win32.ErrorAccessDenied
	}
	was := d.online()
	d.attributes = d.attributes&^request.Mask | request.Attributes
	if request.Persist {
		d.persistent = d.persistent&^request.Mask | request.Attributes
	}
	switch {
	case was && !d.online():
		m.takeOffline(d)
	case !was && d.online():
		if m.collides(d) {
			d.newIdentity()
		}
		m.bringOnline(d)
	}
	return nil
}
