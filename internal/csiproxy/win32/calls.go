// Package win32 has the calls of Windows that storage operations need, as interfaces in
// Windows' own terms, and the bytes that they exchange. The calls have two
// implementations: Windows (package native), and a simulated machine, which takes and
// returns the same bytes. So the packages above run, and are tested, on any system. This
// package makes no decisions.
//
// Errors wrap an Errno if Windows returned one.
package win32

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// Machine is a Windows machine's calls.
type Machine struct {
	Files    Files
	Devices  Devices
	Volumes  Volumes
	SMB      SMB
	ISCSI    ISCSI
	Services Services
	Firmware Firmware
}

// Access are the rights of a handle.
type Access int

// The rights: none, for queries only; GENERIC_READ; GENERIC_READ and GENERIC_WRITE. The
// handle is always shared for reading and writing, with disposition OPEN_EXISTING.
const (
	Query Access = iota
	Read
	ReadWrite
)

// Device is an open disk or volume. A Control may block an OS thread; the caller
// bounds how many do.
type Device interface {
	// Control is DeviceIoControl. It returns how many bytes of out were filled,
	// also together with ERROR_MORE_DATA and ERROR_INSUFFICIENT_BUFFER.
	Control(code ControlCode, in, out []byte) (int, error)
	// ReadAt reads whole sectors at a multiple of the sector size.
	ReadAt(p []byte, offset int64) (int, error)
	// Flush is FlushFileBuffers.
	Flush() error
	Close() error
}

// Devices list and open disks.
type Devices interface {
	// Interfaces is CM_Get_Device_Interface_ListW(GUID_DEVINTERFACE_DISK): paths of
	// the disks that are present.
	Interfaces() ([]string, error)
	// Numbers is QueryDosDeviceW of all names: the N of each \\.\PhysicalDriveN.
	Numbers() ([]uint32, error)
	// OpenInterface opens a path that Interfaces returned.
	OpenInterface(path string, access Access) (Device, error)
	// OpenDisk opens \\.\PhysicalDriveN.
	OpenDisk(number uint32, access Access) (Device, error)
	// Reenumerate is CM_Reenumerate_DevNode of the root, synchronous; it may take
	// seconds.
	Reenumerate() error
}

// VolumeInformation is the result of GetVolumeInformationW.
type VolumeInformation struct {
	FileSystem, Label string
	Serial, Flags     uint32
}

// FreeSpace is the result of GetDiskFreeSpaceExW, in bytes.
type FreeSpace struct{ Available, Total, Free uint64 }

// FormatRequest are the parameters of Volumes.Format.
type FormatRequest struct {
	FileSystem  string // NTFS
	Label       string
	ClusterSize uint32 // bytes; 0 leaves the choice to Windows
}

// Volumes are the volumes and their mount points. Names of volumes are
// \\?\Volume{GUID}\ with the last backslash; directories have it, too.
type Volumes interface {
	// All is FindFirstVolumeW and FindNextVolumeW.
	All() ([]string, error)
	// Open opens the volume device itself, that is without the last backslash.
	Open(volume string, access Access) (Device, error)
	// Information is GetVolumeInformationW: ERROR_UNRECOGNIZED_VOLUME (1005) for a
	// raw volume.
	Information(volume string) (VolumeInformation, error)
	// FreeSpace is GetDiskFreeSpaceExW of a volume or a directory.
	FreeSpace(path string) (FreeSpace, error)
	// Format makes a filesystem by a quick format, also over content. It returns
	// ERROR_NOT_FOUND for a volume that WMI does not list yet; other errors are
	// StorageResults.
	Format(ctx context.Context, volume string, request FormatRequest) error
	// SetMountPoint is SetVolumeMountPointW.
	SetMountPoint(directory, volume string) error
	// DeleteMountPoint is DeleteVolumeMountPointW.
	DeleteMountPoint(directory string) error
	// MountPoint is GetVolumeNameForVolumeMountPointW: ERROR_NOT_A_REPARSE_POINT
	// (4390) or ERROR_INVALID_PARAMETER if no volume is mounted.
	MountPoint(directory string) (string, error)
	// PathNames is GetVolumePathNamesForVolumeNameW: the mount points of a volume.
	PathNames(volume string) ([]string, error)
}

// FileInfo has the attributes of an entry, as its directory or its own handle reports
// them; links are not followed.
type FileInfo struct {
	Name       string
	Attributes uint32 // FILE_ATTRIBUTE_…
	// ReparseTag is IO_REPARSE_TAG_…; 0 for an entry that is not a reparse point, and
	// if Windows does not report it.
	ReparseTag uint32
}

// IsDir reports whether the entry is a directory, or a reparse point in the form of
// one.
func (i FileInfo) IsDir() bool { return i.Attributes&FileAttributeDirectory != 0 }

// IsReparse reports whether the entry is a link, junction, mounted folder or
// another reparse point.
func (i FileInfo) IsReparse() bool { return i.Attributes&FileAttributeReparsePoint != 0 }

// Files open directories.
type Files interface {
	// OpenRoot opens an existing directory by its path, following links on the way:
	// only for directories that the administrator configured.
	OpenRoot(path string) (Directory, error)
	// Attributes is GetFileAttributesW of any path, through links: only to find out
	// whether a share or a link's target can be reached.
	Attributes(path string) (uint32, error)
}

// Directory is an open directory. Names are single components and are looked up in
// the open directory, even if its path has changed; no method follows a reparse
// point. Stat and Open take the names of several levels, from the top down, and look
// them up in one call; a reparse point on the way, such as a mounted folder, is
// ERROR_STOPPED_ON_SYMLINK (681).
type Directory interface {
	// Path is GetFinalPathNameByHandleW without its prefix \\?\.
	Path() (string, error)
	// Stat returns the attributes of an entry, not always with its tag;
	// ERROR_FILE_NOT_FOUND (2), or ERROR_PATH_NOT_FOUND (3) if a directory on the way
	// is missing or a file.
	Stat(names ...string) (FileInfo, error)
	// Open opens a directory in it that is not a reparse point, so that it cannot be
	// replaced while it is open; ERROR_STOPPED_ON_SYMLINK (681) for a reparse point,
	// ERROR_DIRECTORY (267) for a file.
	Open(names ...string) (Directory, error)
	// OpenMounted opens the directory behind a mounted folder; the caller has checked
	// that the entry is one.
	OpenMounted(name string) (Directory, error)
	// Mkdir makes a directory; ERROR_ALREADY_EXISTS (183).
	Mkdir(name string) error
	// Remove removes a file, an empty directory, or a reparse point itself;
	// ERROR_DIR_NOT_EMPTY (145).
	Remove(name string) error
	// List reads the whole directory, without . and ..
	List() ([]FileInfo, error)
	// Symlink makes a symbolic link to a directory (CreateSymbolicLinkW with
	// SYMBOLIC_LINK_FLAG_DIRECTORY); the target need not exist.
	Symlink(name, target string) error
	// Reparse reads an entry's reparse data (FSCTL_GET_REPARSE_POINT):
	// ERROR_NOT_A_REPARSE_POINT (4390).
	Reparse(name string) ([]byte, error)
	Close() error
}

// SMBMapping is a row of MSFT_SmbGlobalMapping.
type SMBMapping struct {
	Remote string // \\server\share
	Status uint32 // 0 OK, 1 paused, 2 disconnected, 3 network error, 4 connecting, 5 reconnecting, 6 unavailable
}

// SMBMappingRequest are the parameters of MSFT_SmbGlobalMapping.Create.
type SMBMappingRequest struct {
	Remote, Username string
	Password         api.Secret
	RequirePrivacy   bool
}

// SMB is the class MSFT_SmbGlobalMapping of Root\Microsoft\Windows\Smb.
type SMB interface {
	Mappings(ctx context.Context) ([]SMBMapping, error)
	Create(ctx context.Context, request SMBMappingRequest) error
	Remove(ctx context.Context, remote string, force bool) error
}

// SessionID is ISCSI_UNIQUE_SESSION_ID.
type SessionID struct{ AdapterUnique, AdapterSpecific uint64 }

// Session is a session of the initiator.
type Session struct {
	ID      SessionID
	IQN     string
	Portals []api.Portal // of its connections
}

// PersistentLogin is a login that Windows repeats at its start.
type PersistentLogin struct {
	IQN    string
	Portal api.Portal
}

// ISCSI is iscsidsc.dll. Errors of its own numbers (ISDSC_…, 0xEFFF…) are Errno, too.
type ISCSI interface {
	AddPortal(ctx context.Context, portal api.Portal) error    // AddIScsiSendTargetPortalW, which also discovers
	RemovePortal(ctx context.Context, portal api.Portal) error // RemoveIScsiSendTargetPortalW
	Portals(ctx context.Context) ([]api.Portal, error)         // ReportIScsiSendTargetPortalsExW
	// Targets are those that a portal reported at the last discovery; update makes
	// it discover again (ReportIScsiTargetsW, ReportIScsiTargetPortalsW).
	Targets(ctx context.Context, portal api.Portal, update bool) ([]string, error)
	// Login opens a session (LoginIScsiTargetW); ISDSC_TARGET_ALREADY_LOGGED_IN when
	// there is one.
	Login(ctx context.Context, login api.ISCSILogin) (SessionID, error)
	// Persist keeps a login for Windows' next starts (LoginIScsiTargetW with
	// IsPersistent) and opens no session. Like Logout and Devices, it fails with
	// ISDSC_SESSION_BUSY or ISDSC_DEVICE_BUSY_ON_SESSION for a short time after a login.
	Persist(ctx context.Context, login api.ISCSILogin) error
	Logout(ctx context.Context, session SessionID) error // LogoutIScsiTarget
	Sessions(ctx context.Context) ([]Session, error)     // GetIScsiSessionListW
	// Devices are the numbers of the session's disks that have arrived
	// (GetDevicesForIScsiSessionW).
	Devices(ctx context.Context, session SessionID) ([]uint32, error)
	PersistentLogins(ctx context.Context) ([]PersistentLogin, error)        // ReportIScsiPersistentLoginsW
	RemovePersistentLogin(ctx context.Context, login PersistentLogin) error // RemoveIScsiPersistentTargetW
	SetSharedSecret(ctx context.Context, secret api.Secret) error           // SetIScsiInitiatorCHAPSharedSecret
}

// Services is the service control manager.
type Services interface {
	// Query is ERROR_SERVICE_DOES_NOT_EXIST (1060) for an unknown name.
	Query(name string) (api.Service, error)
	// Start does not wait: ERROR_SERVICE_ALREADY_RUNNING (1056).
	Start(name string) error
	// Stop does not wait: ERROR_SERVICE_NOT_ACTIVE (1062), ERROR_DEPENDENT_SERVICES_RUNNING (1051).
	Stop(name string) error
	// Dependents are the names of active services that depend on it directly.
	Dependents(name string) ([]string, error)
}

// Firmware is GetSystemFirmwareTable.
type Firmware interface {
	// SMBIOS is the table of the provider RSMB, with its RawSMBIOSData header.
	SMBIOS() ([]byte, error)
}
