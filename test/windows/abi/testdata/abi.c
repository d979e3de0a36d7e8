/* Fills the structures that internal/csiproxy/win32 reads and writes, field by
 * field as this compiler's headers name them, and prints their bytes; with the
 * control codes and a few constants. One "kind name value" a line. The structures
 * are static so that their padding is zero. */
#include <stdio.h>
#include <string.h>
#include <windows.h>
#include <winternl.h>
#include <winioctl.h>
#include <ntddscsi.h>

#ifndef IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS
#define IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS CTL_CODE('V', 0, METHOD_BUFFERED, FILE_ANY_ACCESS)
#endif
#ifndef IOCTL_VOLUME_ONLINE
#define IOCTL_VOLUME_ONLINE CTL_CODE('V', 2, METHOD_BUFFERED, FILE_READ_ACCESS | FILE_WRITE_ACCESS)
#define IOCTL_VOLUME_OFFLINE CTL_CODE('V', 3, METHOD_BUFFERED, FILE_READ_ACCESS | FILE_WRITE_ACCESS)
#endif

#define CODE(name) printf("code " #name " %#lx\n", (unsigned long)(name))
#define BYTES(name, object) dump(name, &(object), sizeof(object))

static void dump(const char *name, const void *object, size_t size) {
	const unsigned char *byte = object;
	printf("bytes %s ", name);
	for (size_t i = 0; i < size; i++) printf("%02x", byte[i]);
	printf("\n");
}

/* {01234567-89ab-cdef-0123-456789abcdef} and {11223344-5566-7788-99aa-bbccddeeff00} */
#define DISK_ID {0x01234567, 0x89ab, 0xcdef, {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}}
static const GUID part_id = {0x11223344, 0x5566, 0x7788, {0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x00}};
static const GUID basic_data = {0xebd0a0a2, 0xb9e5, 0x4433, {0x87, 0xc0, 0x68, 0xb6, 0xb7, 0x26, 0x99, 0xc7}};

static void codes(void) {
	CODE(IOCTL_STORAGE_CHECK_VERIFY2);
	CODE(IOCTL_STORAGE_GET_DEVICE_NUMBER);
	CODE(IOCTL_STORAGE_QUERY_PROPERTY);
	CODE(IOCTL_SCSI_GET_ADDRESS);
	CODE(IOCTL_SCSI_RESCAN_BUS);
	CODE(IOCTL_DISK_IS_WRITABLE);
	CODE(IOCTL_DISK_GET_DRIVE_LAYOUT_EX);
	CODE(IOCTL_DISK_GET_DRIVE_GEOMETRY_EX);
	CODE(IOCTL_DISK_UPDATE_PROPERTIES);
	CODE(IOCTL_DISK_UPDATE_DRIVE_SIZE);
	CODE(IOCTL_DISK_GET_LENGTH_INFO);
	CODE(IOCTL_DISK_SET_DRIVE_LAYOUT_EX);
	CODE(IOCTL_DISK_CREATE_DISK);
	CODE(IOCTL_DISK_GROW_PARTITION);
	CODE(IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS);
	CODE(IOCTL_VOLUME_ONLINE);
	CODE(IOCTL_VOLUME_OFFLINE);
	CODE(FSCTL_LOCK_VOLUME);
	CODE(FSCTL_UNLOCK_VOLUME);
	CODE(FSCTL_DISMOUNT_VOLUME);
	CODE(FSCTL_GET_NTFS_VOLUME_DATA);
	CODE(FSCTL_SET_REPARSE_POINT);
	CODE(FSCTL_GET_REPARSE_POINT);
	CODE(FSCTL_DELETE_REPARSE_POINT);
	CODE(FSCTL_EXTEND_VOLUME);
	CODE(IO_REPARSE_TAG_MOUNT_POINT);
	CODE(IO_REPARSE_TAG_SYMLINK);
	CODE(MAXIMUM_REPARSE_DATA_BUFFER_SIZE);
}

static void errors(void) {
#ifdef ERROR_INVALID_FUNCTION
	CODE(ERROR_INVALID_FUNCTION);
#endif
#ifdef ERROR_FILE_NOT_FOUND
	CODE(ERROR_FILE_NOT_FOUND);
#endif
#ifdef ERROR_PATH_NOT_FOUND
	CODE(ERROR_PATH_NOT_FOUND);
#endif
#ifdef ERROR_TOO_MANY_OPEN_FILES
	CODE(ERROR_TOO_MANY_OPEN_FILES);
#endif
#ifdef ERROR_ACCESS_DENIED
	CODE(ERROR_ACCESS_DENIED);
#endif
#ifdef ERROR_INVALID_HANDLE
	CODE(ERROR_INVALID_HANDLE);
#endif
#ifdef ERROR_NOT_ENOUGH_MEMORY
	CODE(ERROR_NOT_ENOUGH_MEMORY);
#endif
#ifdef ERROR_INVALID_DRIVE
	CODE(ERROR_INVALID_DRIVE);
#endif
#ifdef ERROR_CURRENT_DIRECTORY
	CODE(ERROR_CURRENT_DIRECTORY);
#endif
#ifdef ERROR_NOT_SAME_DEVICE
	CODE(ERROR_NOT_SAME_DEVICE);
#endif
#ifdef ERROR_NO_MORE_FILES
	CODE(ERROR_NO_MORE_FILES);
#endif
#ifdef ERROR_WRITE_PROTECT
	CODE(ERROR_WRITE_PROTECT);
#endif
#ifdef ERROR_NOT_READY
	CODE(ERROR_NOT_READY);
#endif
#ifdef ERROR_CRC
	CODE(ERROR_CRC);
#endif
#ifdef ERROR_BAD_LENGTH
	CODE(ERROR_BAD_LENGTH);
#endif
#ifdef ERROR_SECTOR_NOT_FOUND
	CODE(ERROR_SECTOR_NOT_FOUND);
#endif
#ifdef ERROR_WRITE_FAULT
	CODE(ERROR_WRITE_FAULT);
#endif
#ifdef ERROR_READ_FAULT
	CODE(ERROR_READ_FAULT);
#endif
#ifdef ERROR_GEN_FAILURE
	CODE(ERROR_GEN_FAILURE);
#endif
#ifdef ERROR_SHARING_VIOLATION
	CODE(ERROR_SHARING_VIOLATION);
#endif
#ifdef ERROR_LOCK_VIOLATION
	CODE(ERROR_LOCK_VIOLATION);
#endif
#ifdef ERROR_HANDLE_EOF
	CODE(ERROR_HANDLE_EOF);
#endif
#ifdef ERROR_NOT_SUPPORTED
	CODE(ERROR_NOT_SUPPORTED);
#endif
#ifdef ERROR_REM_NOT_LIST
	CODE(ERROR_REM_NOT_LIST);
#endif
#ifdef ERROR_BAD_NETPATH
	CODE(ERROR_BAD_NETPATH);
#endif
#ifdef ERROR_DEV_NOT_EXIST
	CODE(ERROR_DEV_NOT_EXIST);
#endif
#ifdef ERROR_UNEXP_NET_ERR
	CODE(ERROR_UNEXP_NET_ERR);
#endif
#ifdef ERROR_NETNAME_DELETED
	CODE(ERROR_NETNAME_DELETED);
#endif
#ifdef ERROR_NETWORK_ACCESS_DENIED
	CODE(ERROR_NETWORK_ACCESS_DENIED);
#endif
#ifdef ERROR_BAD_NET_NAME
	CODE(ERROR_BAD_NET_NAME);
#endif
#ifdef ERROR_REQ_NOT_ACCEP
	CODE(ERROR_REQ_NOT_ACCEP);
#endif
#ifdef ERROR_FILE_EXISTS
	CODE(ERROR_FILE_EXISTS);
#endif
#ifdef ERROR_ALREADY_ASSIGNED
	CODE(ERROR_ALREADY_ASSIGNED);
#endif
#ifdef ERROR_INVALID_PASSWORD
	CODE(ERROR_INVALID_PASSWORD);
#endif
#ifdef ERROR_INVALID_PARAMETER
	CODE(ERROR_INVALID_PARAMETER);
#endif
#ifdef ERROR_OPEN_FAILED
	CODE(ERROR_OPEN_FAILED);
#endif
#ifdef ERROR_DISK_FULL
	CODE(ERROR_DISK_FULL);
#endif
#ifdef ERROR_CALL_NOT_IMPLEMENTED
	CODE(ERROR_CALL_NOT_IMPLEMENTED);
#endif
#ifdef ERROR_SEM_TIMEOUT
	CODE(ERROR_SEM_TIMEOUT);
#endif
#ifdef ERROR_INSUFFICIENT_BUFFER
	CODE(ERROR_INSUFFICIENT_BUFFER);
#endif
#ifdef ERROR_INVALID_NAME
	CODE(ERROR_INVALID_NAME);
#endif
#ifdef ERROR_MOD_NOT_FOUND
	CODE(ERROR_MOD_NOT_FOUND);
#endif
#ifdef ERROR_PROC_NOT_FOUND
	CODE(ERROR_PROC_NOT_FOUND);
#endif
#ifdef ERROR_DIR_NOT_ROOT
	CODE(ERROR_DIR_NOT_ROOT);
#endif
#ifdef ERROR_DIR_NOT_EMPTY
	CODE(ERROR_DIR_NOT_EMPTY);
#endif
#ifdef ERROR_BAD_PATHNAME
	CODE(ERROR_BAD_PATHNAME);
#endif
#ifdef ERROR_BUSY
	CODE(ERROR_BUSY);
#endif
#ifdef ERROR_ALREADY_EXISTS
	CODE(ERROR_ALREADY_EXISTS);
#endif
#ifdef ERROR_FILENAME_EXCED_RANGE
	CODE(ERROR_FILENAME_EXCED_RANGE);
#endif
#ifdef ERROR_BAD_PIPE
	CODE(ERROR_BAD_PIPE);
#endif
#ifdef ERROR_PIPE_BUSY
	CODE(ERROR_PIPE_BUSY);
#endif
#ifdef ERROR_NO_DATA
	CODE(ERROR_NO_DATA);
#endif
#ifdef ERROR_PIPE_NOT_CONNECTED
	CODE(ERROR_PIPE_NOT_CONNECTED);
#endif
#ifdef ERROR_MORE_DATA
	CODE(ERROR_MORE_DATA);
#endif
#ifdef ERROR_WAIT_TIMEOUT
	CODE(ERROR_WAIT_TIMEOUT);
#endif
#ifdef ERROR_NO_MORE_ITEMS
	CODE(ERROR_NO_MORE_ITEMS);
#endif
#ifdef ERROR_DIRECTORY
	CODE(ERROR_DIRECTORY);
#endif
#ifdef ERROR_DELETE_PENDING
	CODE(ERROR_DELETE_PENDING);
#endif
#ifdef ERROR_NO_SUCH_DEVICE
	CODE(ERROR_NO_SUCH_DEVICE);
#endif
#ifdef ERROR_DEVICE_HARDWARE_ERROR
	CODE(ERROR_DEVICE_HARDWARE_ERROR);
#endif
#ifdef ERROR_INVALID_ADDRESS
	CODE(ERROR_INVALID_ADDRESS);
#endif
#ifdef ERROR_STOPPED_ON_SYMLINK
	CODE(ERROR_STOPPED_ON_SYMLINK);
#endif
#ifdef ERROR_OPERATION_ABORTED
	CODE(ERROR_OPERATION_ABORTED);
#endif
#ifdef ERROR_UNRECOGNIZED_VOLUME
	CODE(ERROR_UNRECOGNIZED_VOLUME);
#endif
#ifdef ERROR_FILE_INVALID
	CODE(ERROR_FILE_INVALID);
#endif
#ifdef ERROR_DEPENDENT_SERVICES_RUNNING
	CODE(ERROR_DEPENDENT_SERVICES_RUNNING);
#endif
#ifdef ERROR_INVALID_SERVICE_CONTROL
	CODE(ERROR_INVALID_SERVICE_CONTROL);
#endif
#ifdef ERROR_SERVICE_REQUEST_TIMEOUT
	CODE(ERROR_SERVICE_REQUEST_TIMEOUT);
#endif
#ifdef ERROR_SERVICE_DATABASE_LOCKED
	CODE(ERROR_SERVICE_DATABASE_LOCKED);
#endif
#ifdef ERROR_SERVICE_ALREADY_RUNNING
	CODE(ERROR_SERVICE_ALREADY_RUNNING);
#endif
#ifdef ERROR_SERVICE_DISABLED
	CODE(ERROR_SERVICE_DISABLED);
#endif
#ifdef ERROR_SERVICE_DOES_NOT_EXIST
	CODE(ERROR_SERVICE_DOES_NOT_EXIST);
#endif
#ifdef ERROR_SERVICE_CANNOT_ACCEPT_CTRL
	CODE(ERROR_SERVICE_CANNOT_ACCEPT_CTRL);
#endif
#ifdef ERROR_SERVICE_NOT_ACTIVE
	CODE(ERROR_SERVICE_NOT_ACTIVE);
#endif
#ifdef ERROR_SERVICE_DEPENDENCY_FAIL
	CODE(ERROR_SERVICE_DEPENDENCY_FAIL);
#endif
#ifdef ERROR_SERVICE_LOGON_FAILED
	CODE(ERROR_SERVICE_LOGON_FAILED);
#endif
#ifdef ERROR_SERVICE_MARKED_FOR_DELETE
	CODE(ERROR_SERVICE_MARKED_FOR_DELETE);
#endif
#ifdef ERROR_SERVICE_EXISTS
	CODE(ERROR_SERVICE_EXISTS);
#endif
#ifdef ERROR_MEDIA_CHANGED
	CODE(ERROR_MEDIA_CHANGED);
#endif
#ifdef ERROR_NO_MEDIA_IN_DRIVE
	CODE(ERROR_NO_MEDIA_IN_DRIVE);
#endif
#ifdef ERROR_IO_DEVICE
	CODE(ERROR_IO_DEVICE);
#endif
#ifdef ERROR_OLD_WIN_VERSION
	CODE(ERROR_OLD_WIN_VERSION);
#endif
#ifdef ERROR_DEVICE_NOT_CONNECTED
	CODE(ERROR_DEVICE_NOT_CONNECTED);
#endif
#ifdef ERROR_NOT_FOUND
	CODE(ERROR_NOT_FOUND);
#endif
#ifdef ERROR_NO_NET_OR_BAD_PATH
	CODE(ERROR_NO_NET_OR_BAD_PATH);
#endif
#ifdef ERROR_SESSION_CREDENTIAL_CONFLICT
	CODE(ERROR_SESSION_CREDENTIAL_CONFLICT);
#endif
#ifdef ERROR_NO_NETWORK
	CODE(ERROR_NO_NETWORK);
#endif
#ifdef ERROR_CANCELLED
	CODE(ERROR_CANCELLED);
#endif
#ifdef ERROR_CONNECTION_REFUSED
	CODE(ERROR_CONNECTION_REFUSED);
#endif
#ifdef ERROR_NETWORK_UNREACHABLE
	CODE(ERROR_NETWORK_UNREACHABLE);
#endif
#ifdef ERROR_HOST_UNREACHABLE
	CODE(ERROR_HOST_UNREACHABLE);
#endif
#ifdef ERROR_REQUEST_ABORTED
	CODE(ERROR_REQUEST_ABORTED);
#endif
#ifdef ERROR_NOT_AUTHENTICATED
	CODE(ERROR_NOT_AUTHENTICATED);
#endif
#ifdef ERROR_NO_SUCH_LOGON_SESSION
	CODE(ERROR_NO_SUCH_LOGON_SESSION);
#endif
#ifdef ERROR_PRIVILEGE_NOT_HELD
	CODE(ERROR_PRIVILEGE_NOT_HELD);
#endif
#ifdef ERROR_NO_SUCH_USER
	CODE(ERROR_NO_SUCH_USER);
#endif
#ifdef ERROR_LOGON_FAILURE
	CODE(ERROR_LOGON_FAILURE);
#endif
#ifdef ERROR_ACCOUNT_RESTRICTION
	CODE(ERROR_ACCOUNT_RESTRICTION);
#endif
#ifdef ERROR_PASSWORD_EXPIRED
	CODE(ERROR_PASSWORD_EXPIRED);
#endif
#ifdef ERROR_ACCOUNT_DISABLED
	CODE(ERROR_ACCOUNT_DISABLED);
#endif
#ifdef ERROR_LOGON_TYPE_NOT_GRANTED
	CODE(ERROR_LOGON_TYPE_NOT_GRANTED);
#endif
#ifdef ERROR_FILE_CORRUPT
	CODE(ERROR_FILE_CORRUPT);
#endif
#ifdef ERROR_DISK_CORRUPT
	CODE(ERROR_DISK_CORRUPT);
#endif
#ifdef ERROR_NO_SYSTEM_RESOURCES
	CODE(ERROR_NO_SYSTEM_RESOURCES);
#endif
#ifdef ERROR_TIMEOUT
	CODE(ERROR_TIMEOUT);
#endif
#ifdef RPC_S_SERVER_UNAVAILABLE
	CODE(RPC_S_SERVER_UNAVAILABLE);
#endif
#ifdef ERROR_INVALID_USER_BUFFER
	CODE(ERROR_INVALID_USER_BUFFER);
#endif
#ifdef ERROR_UNRECOGNIZED_MEDIA
	CODE(ERROR_UNRECOGNIZED_MEDIA);
#endif
#ifdef ERROR_PASSWORD_MUST_CHANGE
	CODE(ERROR_PASSWORD_MUST_CHANGE);
#endif
#ifdef ERROR_ACCOUNT_LOCKED_OUT
	CODE(ERROR_ACCOUNT_LOCKED_OUT);
#endif
#ifdef ERROR_CANT_ACCESS_FILE
	CODE(ERROR_CANT_ACCESS_FILE);
#endif
#ifdef ERROR_CANT_RESOLVE_FILENAME
	CODE(ERROR_CANT_RESOLVE_FILENAME);
#endif
#ifdef ERROR_NOT_CONNECTED
	CODE(ERROR_NOT_CONNECTED);
#endif
#ifdef ERROR_OPEN_FILES
	CODE(ERROR_OPEN_FILES);
#endif
#ifdef ERROR_DEVICE_IN_USE
	CODE(ERROR_DEVICE_IN_USE);
#endif
#ifdef ERROR_NOT_A_REPARSE_POINT
	CODE(ERROR_NOT_A_REPARSE_POINT);
#endif
#ifdef ERROR_REPARSE_ATTRIBUTE_CONFLICT
	CODE(ERROR_REPARSE_ATTRIBUTE_CONFLICT);
#endif
#ifdef ERROR_INVALID_REPARSE_DATA
	CODE(ERROR_INVALID_REPARSE_DATA);
#endif
#ifdef ERROR_REPARSE_TAG_INVALID
	CODE(ERROR_REPARSE_TAG_INVALID);
#endif
#ifdef ERROR_REPARSE_TAG_MISMATCH
	CODE(ERROR_REPARSE_TAG_MISMATCH);
#endif
#ifdef ERROR_REPARSE_POINT_ENCOUNTERED
	CODE(ERROR_REPARSE_POINT_ENCOUNTERED);
#endif
#ifdef E_NOTIMPL
	CODE(E_NOTIMPL);
#endif
#ifdef E_FAIL
	CODE(E_FAIL);
#endif
#ifdef DISP_E_EXCEPTION
	CODE(DISP_E_EXCEPTION);
#endif
}

/* REPARSE_DATA_BUFFER is in the headers of drivers only (ntifs.h). */
typedef struct {
	ULONG ReparseTag;
	USHORT ReparseDataLength, Reserved;
	union {
		struct {
			USHORT SubstituteNameOffset, SubstituteNameLength, PrintNameOffset, PrintNameLength;
			ULONG Flags;
			WCHAR PathBuffer[1];
		} SymbolicLinkReparseBuffer;
		struct {
			USHORT SubstituteNameOffset, SubstituteNameLength, PrintNameOffset, PrintNameLength;
			WCHAR PathBuffer[1];
		} MountPointReparseBuffer;
	};
} REPARSE_DATA_BUFFER;

static void storage(void) {
	static STORAGE_DEVICE_NUMBER number = {.DeviceType = FILE_DEVICE_DISK, .DeviceNumber = 3, .PartitionNumber = 2};
	BYTES("DeviceNumber", number);
	static SCSI_ADDRESS address = {.Length = sizeof address, .PortNumber = 1, .PathId = 2, .TargetId = 3, .Lun = 4};
	BYTES("SCSIAddress", address);
	static STORAGE_PROPERTY_QUERY query = {.PropertyId = StorageDeviceIdProperty, .QueryType = PropertyStandardQuery};
	BYTES("PropertyQuery", query);

	static struct { STORAGE_DEVICE_DESCRIPTOR header; char more[64]; } device = {.header = {
		.Version = sizeof device.header, .RemovableMedia = TRUE, .BusType = BusTypeSas}};
	STORAGE_DEVICE_DESCRIPTOR *d = &device.header;
	char *texts = (char *)d->RawDeviceProperties;
	d->VendorIdOffset = (char *)memcpy(texts, "vendor", 7) - (char *)d;
	d->ProductIdOffset = (char *)memcpy(texts + 7, "product", 8) - (char *)d;
	d->ProductRevisionOffset = (char *)memcpy(texts + 15, "rev", 4) - (char *)d;
	d->SerialNumberOffset = (char *)memcpy(texts + 19, "serial", 7) - (char *)d;
	d->RawPropertiesLength = 26;
	d->Size = texts + 26 - (char *)d;
	dump("DeviceDescriptor", d, d->Size);

	static GET_LENGTH_INFORMATION length = {.Length.QuadPart = 10LL << 30};
	BYTES("LengthInfo", length);
	static DISK_GEOMETRY_EX geometry = {.Geometry = {.Cylinders.QuadPart = 5, .MediaType = FixedMedia,
		.TracksPerCylinder = 255, .SectorsPerTrack = 63, .BytesPerSector = 512}, .DiskSize.QuadPart = 1 << 30};
	BYTES("Geometry", geometry);
}

static void identifiers(void) {
	static struct { STORAGE_DEVICE_ID_DESCRIPTOR header; unsigned char more[64]; } device = {0};
	STORAGE_DEVICE_ID_DESCRIPTOR *ids = &device.header;
	/* STORAGE_IDENTIFIER is not in these headers. */
	struct identifier { ULONG CodeSet, Type; USHORT IdentifierSize, NextOffset; ULONG Association; UCHAR Identifier[8]; };
	static struct identifier first = {1, 3, 8, sizeof(struct identifier), 0, {1, 2, 3, 4, 5, 6, 7, 8}};
	static struct identifier second = {2, 1, 4, 0, 1, "AWS"};
	ids->Version = sizeof *ids;
	ids->NumberOfIdentifiers = 2;
	memcpy(ids->Identifiers, &first, sizeof first);
	memcpy(ids->Identifiers + sizeof first, &second, sizeof second - 4);
	ids->Size = ids->Identifiers + 2 * sizeof first - 4 - (unsigned char *)ids;
	dump("DeviceIDs", ids, ids->Size);
}

static void layout(void) {
	static CREATE_DISK gpt = {.PartitionStyle = PARTITION_STYLE_GPT, .Gpt = {.DiskId = DISK_ID, .MaxPartitionCount = 128}};
	BYTES("CreateDiskGPT", gpt);
	static CREATE_DISK mbr = {.PartitionStyle = PARTITION_STYLE_MBR, .Mbr.Signature = 0xcafe};
	BYTES("CreateDiskMBR", mbr);

	static DRIVE_LAYOUT_INFORMATION_EX layout = {.PartitionStyle = PARTITION_STYLE_GPT, .PartitionCount = 1, .Gpt = {
		.DiskId = DISK_ID, .StartingUsableOffset.QuadPart = 17408, .UsableLength.QuadPart = 0x3ffff7a00, .MaxPartitionCount = 128}};
	PARTITION_INFORMATION_EX *p = layout.PartitionEntry;
	p->PartitionStyle = PARTITION_STYLE_GPT;
	p->StartingOffset.QuadPart = 17 << 20;
	p->PartitionLength.QuadPart = 1 << 30;
	p->PartitionNumber = 2;
	p->RewritePartition = TRUE;
	p->Gpt.PartitionType = basic_data;
	p->Gpt.PartitionId = part_id;
	p->Gpt.Attributes = GPT_BASIC_DATA_ATTRIBUTE_NO_DRIVE_LETTER;
	wcscpy(p->Gpt.Name, L"Basic");
	dump("DriveLayoutGPT", &layout, (char *)(p + 1) - (char *)&layout);

	memset(&layout, 0, sizeof layout);
	layout.PartitionStyle = p->PartitionStyle = PARTITION_STYLE_MBR;
	layout.PartitionCount = 1;
	layout.Mbr.Signature = 0xcafe;
	p->StartingOffset.QuadPart = 1 << 20;
	p->PartitionLength.QuadPart = 2 << 20;
	p->PartitionNumber = 1;
	p->Mbr.PartitionType = PARTITION_IFS;
	p->Mbr.BootIndicator = p->Mbr.RecognizedPartition = TRUE;
	p->Mbr.HiddenSectors = 2048;
	dump("DriveLayoutMBR", &layout, (char *)(p + 1) - (char *)&layout);

	static DISK_GROW_PARTITION grow = {.PartitionNumber = 2, .BytesToGrow.QuadPart = 1 << 20};
	BYTES("GrowPartition", grow);
}

static void volume(void) {
	static VOLUME_DISK_EXTENTS extents = {.NumberOfDiskExtents = 1, .Extents = {
		{.DiskNumber = 1, .StartingOffset.QuadPart = 17 << 20, .ExtentLength.QuadPart = 1 << 30}}};
	BYTES("VolumeDiskExtents", extents);
	static NTFS_VOLUME_DATA_BUFFER ntfs = {.VolumeSerialNumber.QuadPart = 1, .NumberSectors.QuadPart = 2, .TotalClusters.QuadPart = 3,
		.FreeClusters.QuadPart = 4, .BytesPerSector = 512, .BytesPerCluster = 4096};
	BYTES("NTFSVolumeData", ntfs);

	static struct { FILE_FULL_DIR_INFO entry; WCHAR more[16]; } directory = {.entry = {.FileAttributes = FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT,
		.FileNameLength = 8, .EaSize = IO_REPARSE_TAG_SYMLINK}};
	memcpy(directory.entry.FileName, L"link", 8);
	dump("Directory", &directory, (char *)directory.entry.FileName + 8 - (char *)&directory);

	REPARSE_DATA_BUFFER *reparse = calloc(1, 256);
	reparse->ReparseTag = IO_REPARSE_TAG_SYMLINK;
	memcpy(reparse->SymbolicLinkReparseBuffer.PathBuffer, L"a\0bc\0", 10);
	reparse->SymbolicLinkReparseBuffer.SubstituteNameLength = 2;
	reparse->SymbolicLinkReparseBuffer.PrintNameOffset = 4;
	reparse->SymbolicLinkReparseBuffer.PrintNameLength = 4;
	reparse->SymbolicLinkReparseBuffer.Flags = 1;
	reparse->ReparseDataLength = (char *)(reparse->SymbolicLinkReparseBuffer.PathBuffer + 5) - (char *)&reparse->SymbolicLinkReparseBuffer;
	dump("ReparseSymlink", reparse, 8 + reparse->ReparseDataLength);
	memset(reparse, 0, 256);
	reparse->ReparseTag = IO_REPARSE_TAG_MOUNT_POINT;
	memcpy(reparse->MountPointReparseBuffer.PathBuffer, L"a\0bc\0", 10);
	reparse->MountPointReparseBuffer.SubstituteNameLength = 2;
	reparse->MountPointReparseBuffer.PrintNameOffset = 4;
	reparse->MountPointReparseBuffer.PrintNameLength = 4;
	reparse->ReparseDataLength = (char *)(reparse->MountPointReparseBuffer.PathBuffer + 5) - (char *)&reparse->MountPointReparseBuffer;
	dump("ReparseMountPoint", reparse, 8 + reparse->ReparseDataLength);
	free(reparse);
	BYTES("InterfaceDisk", GUID_DEVINTERFACE_DISK);
	BYTES("PartitionBasicData", basic_data);
}

/* The headers' iscsidsc.h does not compile and differs from the documentation,
 * which this repeats (iscsidsc.h, structures of the iSCSI Discovery Library). */
typedef struct { ULONGLONG AdapterUnique, AdapterSpecific; } ISCSI_ID;
typedef struct {
	ULONG Version, InformationSpecified, LoginFlags, AuthType, HeaderDigest, DataDigest;
	ULONG MaximumConnections, DefaultTime2Wait, DefaultTime2Retain, UsernameLength, PasswordLength;
	PUCHAR Username, Password;
} ISCSI_LOGIN_OPTIONS;
typedef struct {
	WCHAR SymbolicName[256], Address[256];
	USHORT Socket;
} ISCSI_TARGET_PORTALW;
typedef struct {
	WCHAR InitiatorName[256];
	ULONG InitiatorPortNumber;
	WCHAR SymbolicName[256], Address[256];
	USHORT Socket;
	ULONGLONG SecurityFlags;
	ISCSI_LOGIN_OPTIONS LoginOptions;
} ISCSI_TARGET_PORTAL_INFO_EXW;
typedef struct {
	ISCSI_ID ConnectionId;
	PWCHAR InitiatorAddress, TargetAddress;
	USHORT InitiatorSocket, TargetSocket;
	UCHAR CID[2];
} ISCSI_CONNECTION_INFOW;
typedef struct {
	ISCSI_ID SessionId;
	PWCHAR InitiatorName, TargetNodeName, TargetName;
	UCHAR ISID[6], TSID[2];
	ULONG ConnectionCount;
	ISCSI_CONNECTION_INFOW *Connections;
} ISCSI_SESSION_INFOW;
typedef struct {
	WCHAR InitiatorName[256], TargetName[224];
	SCSI_ADDRESS ScsiAddress;
	GUID DeviceInterfaceType;
	WCHAR DeviceInterfaceName[MAX_PATH], LegacyName[MAX_PATH];
	STORAGE_DEVICE_NUMBER StorageDeviceNumber;
	ULONG DeviceInstance;
} ISCSI_DEVICE_ON_SESSIONW;
typedef struct {
	WCHAR TargetName[224];
	BOOLEAN IsInformationalSession;
	WCHAR InitiatorInstance[256];
	ULONG InitiatorPortNumber;
	ISCSI_TARGET_PORTALW TargetPortal;
	ULONGLONG SecurityFlags;
	PVOID Mappings;
	ISCSI_LOGIN_OPTIONS LoginOptions;
} PERSISTENT_ISCSI_LOGIN_INFOW;

/* What the discovery library writes holds pointers into the caller's buffer. */
static struct {
	ISCSI_SESSION_INFOW session;
	ISCSI_CONNECTION_INFOW connections[2];
	WCHAR node[16], name[16], address[2][16];
} sessions;

static void iscsi(void) {
	static ISCSI_TARGET_PORTALW portal = {.Address = L"10.0.0.1", .Socket = 3261};
	BYTES("ISCSIPortal", portal);
	static ISCSI_TARGET_PORTAL_INFO_EXW info = {.InitiatorName = L"initiator", .InitiatorPortNumber = 7, .Address = L"10.0.0.1", .Socket = 3261};
	BYTES("ISCSIPortalInfo", info);
	static struct { ISCSI_LOGIN_OPTIONS options; char username[4], password[6]; } login = {
		.options = {.InformationSpecified = 0x80 | 0x20 | 0x40, .AuthType = 1, .UsernameLength = 4, .PasswordLength = 6,
			.Username = (PUCHAR)(0x100000 + sizeof(ISCSI_LOGIN_OPTIONS)), .Password = (PUCHAR)(0x100000 + sizeof(ISCSI_LOGIN_OPTIONS) + 4)},
		.username = {'u', 's', 'e', 'r'}, .password = {'s', 'e', 'c', 'r', 'e', 't'}};
	dump("ISCSILoginOptions", &login, sizeof login.options + 10);

	sessions.session = (ISCSI_SESSION_INFOW){.SessionId = {1, 2}, .TargetNodeName = sessions.node, .TargetName = sessions.name,
		.ConnectionCount = 2, .Connections = sessions.connections};
	wcscpy(sessions.node, L"iqn.node");
	wcscpy(sessions.name, L"iqn.name");
	wcscpy(sessions.address[0], L"10.0.0.1");
	wcscpy(sessions.address[1], L"10.0.0.2");
	for (int i = 0; i < 2; i++)
		sessions.connections[i] = (ISCSI_CONNECTION_INFOW){.TargetAddress = sessions.address[i], .TargetSocket = 3260 + i};
	printf("code SESSIONS_BASE %#llx\n", (unsigned long long)&sessions);
	BYTES("ISCSISessions", sessions);

	static ISCSI_DEVICE_ON_SESSIONW device = {.TargetName = L"iqn.name", .StorageDeviceNumber = {FILE_DEVICE_DISK, 5, 0}};
	BYTES("ISCSIDevice", device);
	static PERSISTENT_ISCSI_LOGIN_INFOW kept = {.TargetName = L"iqn.name", .InitiatorInstance = L"initiator", .InitiatorPortNumber = 9,
		.TargetPortal = {.Address = L"10.0.0.1", .Socket = 3261}};
	BYTES("ISCSIPersistentLogin", kept);
}

int main(void) {
	codes();
	errors();
	storage();
	identifiers();
	layout();
	volume();
	iscsi();
	return 0;
}
