package windows

import (
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// volumeControl is DeviceIoControl on a volume.
func (d *device) volumeControl(code win32.ControlCode, in, out []byte) (int, error) {
	v := d.volume
	switch code {
	case win32.IoctlStorageCheckVerify2:
		return 0, nil
	case win32.IoctlStorageGetDeviceNumber:
		return whole(out, win32.DeviceNumber{
			Type: win32.DeviceTypeDisk, Number: v.disk.number, Partition: v.partition.Number,
		}.Encode())
	case win32.IoctlVolumeGetVolumeDiskExtents:
		extents := win32.VolumeDiskExtents{{Disk: v.disk.number, Offset: v.partition.Offset, Length: v.partition.Length}}
		extents = append(extents, v.disk.spec.Spanned...)
		return partly(out, extents.Encode(), win32.VolumeDiskExtentsSize(1))
	case win32.IoctlDiskGetLengthInfo:
		return whole(out, win32.LengthInfo{Length: v.partition.Length}.Encode())
	case win32.IoctlDiskGetDriveGeometryEx:
		return whole(out, v.disk.geometry().Encode())
	case win32.IoctlDiskIsWritable:
		if v.disk.readOnly() {
			return 0, win32.ErrorWriteProtect
		}
		return 0, nil
	case win32.IoctlStorageQueryProperty: // answered by the disk below
		return v.disk.queryProperty(in, out)
	}
	if d.access == win32.Query { // not a handle that the filesystem knows
		return 0, win32.ErrorInvalidFunction
	}
	return d.filesystemControl(code, in, out)
}

// filesystemControl are the codes that the filesystem answers.
func (d *device) filesystemControl(code win32.ControlCode, in, out []byte) (int, error) {
	v := d.volume
	if v.lockedFor(d) {
		return 0, win32.ErrorAccessDenied
	}
	switch code {
	case win32.FsctlLockVolume:
		if len(v.devices) > 1 || v.inUse() {
			return 0, win32.ErrorAccessDenied
		}
		v.lock = d
		v.flush()
		return 0, nil
	case win32.FsctlUnlockVolume:
		if v.lock != d {
			return 0, errNotLocked
		}
		v.lock = nil
		return 0, nil
	case win32.FsctlDismountVolume:
		if v.disk.system {
			return 0, win32.ErrorAccessDenied
		}
		if fs := v.filesystem(); fs != nil {
			v.flush()
			fs.dismount()
		}
		return 0, nil
	case win32.FsctlGetNTFSVolumeData:
		fs := v.recognised()
		if fs == nil || fs.kind != ntfs {
			return 0, win32.ErrorInvalidFunction
		}
		return whole(out, fs.volumeData().Encode())
	case win32.FsctlExtendVolume:
		total, err := sectors(in)
		if err != nil {
			return 0, err
		}
		return 0, v.extend(total)
	}
	return 0, win32.ErrorInvalidFunction
}

// errNotLocked is ERROR_NOT_LOCKED.
const errNotLocked win32.Errno = 158

// inUse reports whether a file or directory on the volume is open.
func (v *volume) inUse() bool {
	fs := v.filesystem()
	return fs != nil && fs.root.open > 0
}

// extend makes the filesystem larger, online, up to the partition's end.
func (v *volume) extend(total int64) error {
	fs := v.filesystem()
	if fs == nil || fs.kind != ntfs && fs.kind != "ReFS" {
		return win32.ErrorInvalidFunction
	}
	if err := v.disk.writable(); err != nil {
		return err
	}
	if total < fs.sectors || total > v.partition.Length/v.disk.sector {
		return win32.ErrorInvalidParameter
	}
	v.disk.extend(v.partition, fs, total)
	return nil
}
