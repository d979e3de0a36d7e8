package win32

import "fmt"

// ControlCode is a control code of DeviceIoControl (winioctl.h, ntddscsi.h,
// ntddvol.h).
type ControlCode uint32

// The control codes that storage operations use.
const (
	IoctlStorageCheckVerify2        ControlCode = 0x2D0800
	IoctlStorageGetDeviceNumber     ControlCode = 0x2D1080
	IoctlStorageQueryProperty       ControlCode = 0x2D1400
	IoctlSCSIGetAddress             ControlCode = 0x41018
	IoctlSCSIRescanBus              ControlCode = 0x4101C
	IoctlDiskIsWritable             ControlCode = 0x70024
	IoctlDiskGetDriveLayoutEx       ControlCode = 0x70050
	IoctlDiskGetDriveGeometryEx     ControlCode = 0x700A0
	IoctlDiskGetDiskAttributes      ControlCode = 0x700F0
	IoctlDiskUpdateProperties       ControlCode = 0x70140
	IoctlDiskGetLengthInfo          ControlCode = 0x7405C
	IoctlDiskSetDriveLayoutEx       ControlCode = 0x7C054
	IoctlDiskCreateDisk             ControlCode = 0x7C058
	IoctlDiskUpdateDriveSize        ControlCode = 0x7C0C8
	IoctlDiskGrowPartition          ControlCode = 0x7C0D0
	IoctlDiskSetDiskAttributes      ControlCode = 0x7C0F4
	IoctlVolumeGetVolumeDiskExtents ControlCode = 0x560000
	IoctlVolumeOnline               ControlCode = 0x56C008
	IoctlVolumeOffline              ControlCode = 0x56C00C
	FsctlLockVolume                 ControlCode = 0x90018
	FsctlUnlockVolume               ControlCode = 0x9001C
	FsctlDismountVolume             ControlCode = 0x90020
	FsctlGetNTFSVolumeData          ControlCode = 0x90064
	FsctlSetReparsePoint            ControlCode = 0x900A4
	FsctlGetReparsePoint            ControlCode = 0x900A8
	FsctlDeleteReparsePoint         ControlCode = 0x900AC
	FsctlExtendVolume               ControlCode = 0x900F0
)

// String is the header's name of the code.
func (c ControlCode) String() string {
	if name, ok := controlNames[c]; ok {
		return name
	}
	return fmt.Sprintf("control code %#x", uint32(c))
}

var controlNames = map[ControlCode]string{
	IoctlStorageCheckVerify2:        "IOCTL_STORAGE_CHECK_VERIFY2",
	IoctlStorageGetDeviceNumber:     "IOCTL_STORAGE_GET_DEVICE_NUMBER",
	IoctlStorageQueryProperty:       "IOCTL_STORAGE_QUERY_PROPERTY",
	IoctlSCSIGetAddress:             "IOCTL_SCSI_GET_ADDRESS",
	IoctlSCSIRescanBus:              "IOCTL_SCSI_RESCAN_BUS",
	IoctlDiskIsWritable:             "IOCTL_DISK_IS_WRITABLE",
	IoctlDiskGetDriveLayoutEx:       "IOCTL_DISK_GET_DRIVE_LAYOUT_EX",
	IoctlDiskGetDriveGeometryEx:     "IOCTL_DISK_GET_DRIVE_GEOMETRY_EX",
	IoctlDiskGetDiskAttributes:      "IOCTL_DISK_GET_DISK_ATTRIBUTES",
	IoctlDiskUpdateProperties:       "IOCTL_DISK_UPDATE_PROPERTIES",
	IoctlDiskGetLengthInfo:          "IOCTL_DISK_GET_LENGTH_INFO",
	IoctlDiskSetDriveLayoutEx:       "IOCTL_DISK_SET_DRIVE_LAYOUT_EX",
	IoctlDiskCreateDisk:             "IOCTL_DISK_CREATE_DISK",
	IoctlDiskUpdateDriveSize:        "IOCTL_DISK_UPDATE_DRIVE_SIZE",
	IoctlDiskGrowPartition:          "IOCTL_DISK_GROW_PARTITION",
	IoctlDiskSetDiskAttributes:      "IOCTL_DISK_SET_DISK_ATTRIBUTES",
	IoctlVolumeGetVolumeDiskExtents: "IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS",
	IoctlVolumeOnline:               "IOCTL_VOLUME_ONLINE",
	IoctlVolumeOffline:              "IOCTL_VOLUME_OFFLINE",
	FsctlLockVolume:                 "FSCTL_LOCK_VOLUME",
	FsctlUnlockVolume:               "FSCTL_UNLOCK_VOLUME",
	FsctlDismountVolume:             "FSCTL_DISMOUNT_VOLUME",
	FsctlGetNTFSVolumeData:          "FSCTL_GET_NTFS_VOLUME_DATA",
	FsctlSetReparsePoint:            "FSCTL_SET_REPARSE_POINT",
	FsctlGetReparsePoint:            "FSCTL_GET_REPARSE_POINT",
	FsctlDeleteReparsePoint:         "FSCTL_DELETE_REPARSE_POINT",
	FsctlExtendVolume:               "FSCTL_EXTEND_VOLUME",
}

// File attributes (winnt.h).
const (
	FileAttributeReadOnly     uint32 = 0x1
	FileAttributeHidden       uint32 = 0x2
	FileAttributeSystem       uint32 = 0x4
	FileAttributeDirectory    uint32 = 0x10
	FileAttributeArchive      uint32 = 0x20
	FileAttributeNormal       uint32 = 0x80
	FileAttributeReparsePoint uint32 = 0x400
)

// Reparse tags (ntifs.h). They are numbers, not sets of bits: compare them with ==
// only.
const (
	ReparseTagMountPoint uint32 = 0xA0000003 // junctions and mounted folders
	ReparseTagSymlink    uint32 = 0xA000000C
	ReparseTagAFUnix     uint32 = 0x80000023
)

// Types of devices in DeviceNumber.Type (winioctl.h, DEVICE_TYPE).
const (
	DeviceTypeCDROM uint32 = 2
	DeviceTypeDisk  uint32 = 7
)

// Buses in DeviceDescriptor.BusType (STORAGE_BUS_TYPE).
const (
	BusSCSI  uint32 = 1
	BusATA   uint32 = 3
	BusUSB   uint32 = 7
	BusISCSI uint32 = 9
	BusSAS   uint32 = 10
	BusSATA  uint32 = 11
	BusNVMe  uint32 = 17
)

// Attributes of a disk in SetDiskAttributes and GetDiskAttributes.
const (
	DiskAttributeOffline  uint64 = 1
	DiskAttributeReadOnly uint64 = 2
)

// GPTNoDriveLetter is GPT_BASIC_DATA_ATTRIBUTE_NO_DRIVE_LETTER.
const GPTNoDriveLetter uint64 = 1 << 63

// FileReadOnlyVolume is a bit of VolumeInformation.Flags (winnt.h).
const FileReadOnlyVolume uint32 = 0x00080000
