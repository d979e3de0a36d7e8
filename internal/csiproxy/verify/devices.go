package verify

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/verify"
)

// devices are the checks of disks that only read.
func (s *Session) devices() []verify.Check {
	return []verify.Check{
		check("win-disks-are-listed", "CM_Get_Device_Interface_ListW lists at least one disk, and each of them reports its number without any access right",
			"GUID_DEVINTERFACE_DISK; IOCTL_STORAGE_GET_DEVICE_NUMBER", "disks are not found", s.listed),
		check("win-disks-two-ways", `each of these numbers is a \\.\PhysicalDriveN`,
			"QueryDosDeviceW", "a disk is found one way and not the other", s.twoWays),
		check("win-short-buffer", "IOCTL_STORAGE_QUERY_PROPERTY fills a short buffer with a header that has the size of the whole answer",
			"STORAGE_DESCRIPTOR_HEADER", "long identifiers are cut", s.eachDisk(func(d win32.Device) verify.Result {
				out := make([]byte, 8)
				n, err := d.Control(win32.IoctlStorageQueryProperty,
					win32.PropertyQuery{Property: win32.PropertyDevice, Type: win32.QueryStandard}.Encode(), out)
				if err != nil {
					return verify.Differed("%v", err)
				}
				size, err := win32.DescriptorSize(out[:n])
				if err != nil || size < 36 {
					return verify.Differed("size %d, %v", size, err)
				}
				return verify.Held("%d bytes", size)
			})),
		check("win-geometry", "IOCTL_DISK_GET_DRIVE_GEOMETRY_EX has the disk's size without any access right",
			"IOCTL_DISK_GET_DRIVE_GEOMETRY_EX", "sizes of disks are unknown", s.eachDisk(func(d win32.Device) verify.Result {
				out := make([]byte, 4<<10)
				n, err := d.Control(win32.IoctlDiskGetDriveGeometryEx, nil, out)
				if err != nil {
					return verify.Differed("%v", err)
				}
				geometry, err := win32.DecodeGeometry(out[:n])
				if err != nil || geometry.DiskSize <= 0 || geometry.BytesPerSector < 512 {
					return verify.Differed("%+v, %v", geometry, err)
				}
				return verify.Held("%d bytes in sectors of %d", geometry.DiskSize, geometry.BytesPerSector)
			})),
		check("win-attributes", "IOCTL_DISK_GET_DISK_ATTRIBUTES answers without any access right",
			"IOCTL_DISK_GET_DISK_ATTRIBUTES", "it is unknown which disks are online", s.eachDisk(func(d win32.Device) verify.Result {
				out := make([]byte, 16)
				n, err := d.Control(win32.IoctlDiskGetDiskAttributes, nil, out)
				if err != nil {
					return verify.Differed("%v", err)
				}
				_, err = win32.DecodeGetDiskAttributes(out[:n])
				return succeeded(err)
			})),
		check("win-length-needs-read", "IOCTL_DISK_GET_LENGTH_INFO needs read access: ERROR_ACCESS_DENIED without",
			"the access bits of the control code", "a code is sent with too few rights", s.eachDisk(func(d win32.Device) verify.Result {
				_, err := d.Control(win32.IoctlDiskGetLengthInfo, nil, make([]byte, 8))
				return refused(err, win32.ErrorAccessDenied)
			})),
		check("win-layout-of-system-disk", "IOCTL_DISK_GET_DRIVE_LAYOUT_EX shows partitions of at least one disk",
			"IOCTL_DISK_GET_DRIVE_LAYOUT_EX", "a disk with data is taken for a blank one", s.systemLayout),
	}
}

// numbers are those of the disks, by their interfaces.
func (s *Session) numbers() ([]uint32, error) {
	paths, err := s.Machine.Devices.Interfaces()
	if err != nil {
		return nil, err
	}
	var numbers []uint32
	for _, path := range paths {
		d, err := s.Machine.Devices.OpenInterface(path, win32.Query)
		if err != nil {
			return nil, err
		}
		out := make([]byte, 12)
		n, err := d.Control(win32.IoctlStorageGetDeviceNumber, nil, out)
		_ = d.Close()
		if err != nil {
			return nil, err
		}
		number, err := win32.DecodeDeviceNumber(out[:n])
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, number.Number)
	}
	return numbers, nil
}

func (s *Session) listed(context.Context) verify.Result {
	numbers, err := s.numbers()
	if err != nil || len(numbers) == 0 {
		return verify.Differed("%d disks, %v", len(numbers), err)
	}
	return verify.Held("%d disks", len(numbers))
}

func (s *Session) twoWays(context.Context) verify.Result {
	numbers, err := s.numbers()
	if err != nil {
		return verify.Differed("%v", err)
	}
	others, err := s.Machine.Devices.Numbers()
	if err != nil {
		return verify.Differed("%v", err)
	}
	for _, number := range numbers {
		if !slices.Contains(others, number) {
			return verify.Differed("%d is not among %v", number, others)
		}
	}
	return verify.Held("%v", others)
}

// eachDisk runs f on each disk, without any access right. The first that does not hold counts.
func (s *Session) eachDisk(f func(win32.Device) verify.Result) func(context.Context) verify.Result {
	return func(context.Context) verify.Result {
		numbers, err := s.numbers()
		if err != nil {
			return verify.Differed("%v", err)
		}
		result := verify.Skipped("there is no disk")
		for _, number := range numbers {
			d, err := s.Machine.Devices.OpenDisk(number, win32.Query)
			if err != nil {
				return verify.Differed("open disk %d: %v", number, err)
			}
			result = f(d)
			_ = d.Close()
			if result.Outcome != verify.Holds {
				return result
			}
		}
		return result
	}
}

func (s *Session) systemLayout(context.Context) verify.Result {
	numbers, err := s.numbers()
	if err != nil {
		return verify.Differed("%v", err)
	}
	for _, number := range numbers {
		if layout, err := s.layout(number); err == nil && len(layout.Partitions) > 0 {
			return verify.Held("disk %d has %d entries", number, len(layout.Partitions))
		}
	}
	return verify.Differed("no disk of %v has a partition", numbers)
}

func (s *Session) layout(number uint32) (win32.DriveLayout, error) {
	d, err := s.Machine.Devices.OpenDisk(number, win32.Query)
	if err != nil {
		return win32.DriveLayout{}, err
	}
	defer func() { _ = d.Close() }()
	out := make([]byte, win32.DriveLayoutSize(128))
	n, err := d.Control(win32.IoctlDiskGetDriveLayoutEx, nil, out)
	if err != nil {
		return win32.DriveLayout{}, err
	}
	return win32.DecodeDriveLayout(out[:n])
}

// volumes are the checks of volumes that change nothing.
func (s *Session) volumes() []verify.Check {
	return []verify.Check{
		check("win-volume-names", `FindFirstVolumeW lists names of the form \\?\Volume{GUID}\`,
			naming, "volumes are refused by their names", func(context.Context) verify.Result {
				names, err := s.Machine.Volumes.All()
				if err != nil || len(names) == 0 {
					return verify.Differed("%d volumes, %v", len(names), err)
				}
				for _, name := range names {
					if _, err := win32.ParseVolumeName(name); err != nil || !strings.HasSuffix(name, `\`) {
						return verify.Differed("%s: %v", name, err)
					}
				}
				return verify.Held("%d volumes", len(names))
			}),
		check("win-system-drive", `the volume of C:\ is among them, is mounted there by its path names, and is NTFS`,
			"GetVolumeNameForVolumeMountPointW", "the volume of a path is not found", s.systemDrive),
		check("win-no-mount-point", "GetVolumeNameForVolumeMountPointW of a plain directory is ERROR_NOT_A_REPARSE_POINT or ERROR_INVALID_PARAMETER",
			undocumented, "an ordinary directory is an error, or a mounted folder", s.in(func(d win32.Directory) verify.Result {
				return with(d, "plain", func() verify.Result {
					_, err := s.Machine.Volumes.MountPoint(s.Dir + `\plain\`)
					return refused(err, win32.ErrorNotAReparsePoint, win32.ErrorInvalidParameter)
				})
			})),
		check("win-mount-unknown-volume", "SetVolumeMountPointW of a volume that does not exist fails and leaves the directory as it is",
			"SetVolumeMountPointW", "a folder looks mounted and is not", s.in(func(d win32.Directory) verify.Result {
				return with(d, "plain", func() verify.Result {
					err := s.Machine.Volumes.SetMountPoint(s.Dir+`\plain\`, `\\?\Volume{00000000-0000-0000-0000-000000000001}\`)
					if err == nil {
						_ = s.Machine.Volumes.DeleteMountPoint(s.Dir + `\plain\`)
						return verify.Differed("Windows answered success")
					}
					info, statErr := d.Stat("plain")
					if statErr != nil || info.IsReparse() {
						return verify.Differed("attributes %#x, %v, after %v", info.Attributes, statErr, err)
					}
					return verify.Held("%v", err)
				})
			})),
	}
}

func (s *Session) systemDrive(context.Context) verify.Result {
	const drive = `C:\`
	volume, err := s.Machine.Volumes.MountPoint(drive)
	if err != nil {
		return verify.Differed("%v", err)
	}
	names, err := s.Machine.Volumes.All()
	if err != nil || !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, volume) }) {
		return verify.Differed("it is not among %d volumes, %v", len(names), err)
	}
	paths, err := s.Machine.Volumes.PathNames(volume)
	if err != nil || !slices.ContainsFunc(paths, func(p string) bool { return strings.EqualFold(p, drive) }) {
		return verify.Differed("mounted at %q, %v", paths, err)
	}
	information, err := s.Machine.Volumes.Information(volume)
	if err != nil {
		return verify.Differed("%v", err)
	}
	return expect(information.FileSystem, "NTFS")
}
