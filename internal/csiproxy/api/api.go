// Package api has the operations of csi-proxy, in one set of types that is the union of
// all API versions: each version of each API is translated to it and back. This machine's
// Windows, a simulated one and a proxy behind a pipe implement it.
//
// Parameters are as the caller wrote them; an implementation checks paths, volume IDs and
// names before any step. Errors wrap the sentinels of package backend: ErrInvalid for a
// parameter that is not acceptable, ErrNotFound, ErrExists, ErrPrecondition, ErrInUse,
// ErrDenied, ErrCredentials, ErrUnavailable. Errors of Windows also wrap a win32.Errno.
package api

import (
	"context"
	"fmt"
	"log/slog"
	"math"
)

// Host is one Windows machine.
type Host struct {
	Filesystem Filesystem
	Disks      Disks
	Volumes    Volumes
	SMB        SMB
	ISCSI      ISCSI
	System     System
}

// Filesystem works on paths below the configured roots, and follows no link on
// the way to them.
type Filesystem interface {
	// PathExists does not follow a link at the path: a dangling one exists.
	PathExists(ctx context.Context, path string) (bool, error)
	// Mkdir makes the directory and its parents. An existing directory is not an error;
	// a file is ErrExists.
	Mkdir(ctx context.Context, path string) error
	// Rmdir removes a directory, or a link or mounted folder itself. Without force a
	// directory must be empty (ErrPrecondition) and exist (ErrNotFound). With force it
	// removes the whole tree, and enters no link in it.
	Rmdir(ctx context.Context, path string, force bool) error
	// RmdirContents empties a directory as Rmdir with force would.
	RmdirContents(ctx context.Context, path string) error
	// Link makes a directory link at path link to source, which must be a directory, a
	// link or a mounted folder. An equal link is not an error; any other entry is
	// ErrExists.
	Link(ctx context.Context, source, link string) error
	// IsLink reports whether the path is a link, junction or mounted folder whose
	// target exists; ErrNotFound for a missing path.
	IsLink(ctx context.Context, path string) (bool, error)
}

// DiskLocation is a disk's SCSI address, in decimal digits.
type DiskLocation struct{ Adapter, Bus, Target, LUN string }

// UnknownNumber is the number of a disk that did not report its number.
const UnknownNumber = math.MaxUint32

// Disk is a physical disk with its present number. The number changes over reboots and
// re-attachments, so it is never stored.
type Disk struct {
	Number   uint32        // UnknownNumber only together with a Problem
	Location *DiskLocation // nil if the adapter has none
	// Page83 is the device's first identifier of VPD page 0x83 in lower-case hex,
	// or its text; SerialNumber is without its padding. "" when it has none, and both
	// are "" when one of them could not be read.
	Page83, SerialNumber string
	Identifiers          []DiskIdentifier // all of VPD page 0x83, in its order
	Size                 int64            // bytes
	Online, ReadOnly     bool
	// Problem is why the disk could not be read; the rest may be missing then.
	Problem error
}

// Identity identifies a disk. One of the two may be empty. The zero value matches any
// disk.
type Identity struct{ Page83, SerialNumber string }

// DiskIdentifier is one identifier in VPD page 0x83, with the numbers that the page
// has for it (SPC-4, 7.8.6).
type DiskIdentifier struct {
	CodeSet, Type, Association uint32
	Value                      string // lower-case hex of binary data, otherwise text
}

// IsUnidentified reports whether the disk's identity could not be read: it may be any
// volume's disk.
func (d Disk) IsUnidentified() bool { return d.Problem != nil && d.Identity() == (Identity{}) }

// Identity returns the disk's identity.
func (d Disk) Identity() Identity { return Identity{Page83: d.Page83, SerialNumber: d.SerialNumber} }

// IsOf reports whether a disk has all that the identity has.
func (i Identity) IsOf(d Disk) bool {
	return (i.Page83 == "" || i.Page83 == d.Page83) && (i.SerialNumber == "" || i.SerialNumber == d.SerialNumber)
}

// Disks are the physical disks. A number means the disk that has it at the time of the
// call. A caller that needs a certain disk gives its identity: if another disk has the
// number, it is not changed, and the call is ErrUnavailable.
type Disks interface {
	// List returns all disks by ascending number. A disk that cannot be read is
	// listed with its Problem.
	List(ctx context.Context) ([]Disk, error)
	// Rescan makes Windows search for added and removed disks and for new sizes.
	// Concurrent calls share one scan.
	Rescan(ctx context.Context) error
	// Partition brings a blank disk online and writable, gives it a GPT and one
	// basic data partition of all its space, and returns the partition's volume
	// once Windows has it. A disk that is partitioned stays as it is; its first
	// data volume is returned, "" if it has none. Any other content of the disk is
	// ErrPrecondition.
	Partition(ctx context.Context, disk uint32, expected Identity) (volumeID string, err error)
	// Size is in bytes.
	Size(ctx context.Context, disk uint32) (int64, error)
	Online(ctx context.Context, disk uint32) (bool, error)
	// SetOnline also makes the disk writable when it brings it online. Before a disk
	// goes offline its volumes are flushed and dismounted; ErrInUse if a file on them is
	// open.
	SetOnline(ctx context.Context, disk uint32, expected Identity, online bool) error
}

// VolumeStats are in bytes.
type VolumeStats struct{ Total, Used int64 }

// Volumes are those that Windows has found on disks. An ID is
// \\?\Volume{GUID}\, with or without the last backslash.
type Volumes interface {
	// OnDisk lists the volumes of a partition, or of all if partition is 0. It waits for
	// the volumes of data partitions.
	OnDisk(ctx context.Context, disk, partition uint32) ([]string, error)
	// FileSystem is the name of the volume's filesystem; "" for a raw volume.
	FileSystem(ctx context.Context, volumeID string) (string, error)
	// Format makes an NTFS (fileSystem "" or "NTFS") on a raw volume whose blocks
	// are blank; ErrPrecondition for any other, without exception.
	Format(ctx context.Context, volumeID, fileSystem string) error
	// Mount makes an empty directory a mounted folder; ErrPrecondition if it is not empty
	// or another volume's. The same volume is not an error.
	Mount(ctx context.Context, volumeID, path string) error
	// Unmount flushes the volume and unmounts it from the directory, which stays. A
	// volume that is not mounted there is not an error; another volume is
	// ErrPrecondition.
	Unmount(ctx context.Context, volumeID, path string) error
	// Resize grows partition and filesystem to size bytes, 0 for all of the disk, and
	// returns the volume's size. It never shrinks: a smaller size is not an error.
	Resize(ctx context.Context, volumeID string, size int64) (int64, error)
	Stats(ctx context.Context, volumeID string) (VolumeStats, error)
	// DiskOf returns the disk, mounted or not; ErrPrecondition for a spanned volume.
	DiskOf(ctx context.Context, volumeID string) (uint32, error)
	// At returns the volume of a mounted folder, or of a link to one.
	At(ctx context.Context, path string) (string, error)
	// Closest returns the volume that contains a path, through links.
	Closest(ctx context.Context, path string) (string, error)
	// Flush writes the volume's cache to the disk.
	Flush(ctx context.Context, volumeID string) error
}

// Secret is a password. Printing and logging it show stars.
type Secret string

const redacted = "***"

func (Secret) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return redacted }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Format implements fmt.Formatter, so that no verb shows it.
func (Secret) Format(state fmt.State, _ rune) { _, _ = fmt.Fprint(state, redacted) }

// Reveal returns the secret itself, for the call that needs it.
func (s Secret) Reveal() string { return string(s) }

// SMBMount asks for an SMB share on this machine.
type SMBMount struct {
	// Remote is \\server\share, or a directory below it, with backslashes or slashes.
	Remote string
	// Local is the path of a link to it; "" for none.
	Local    string
	Username string
	Password Secret
}

// SMB are the machine's global mappings, which containers see as well. Mounts of one
// share have one mapping, which is removed with the last of them.
type SMB interface {
	// Mount fails with ErrPrecondition if the share is mapped for another user, with
	// ErrCredentials if the server rejects the password.
	Mount(ctx context.Context, mount SMBMount) error
	// Unmount ends one mount of the remote path: the one at local, or, if local is "",
	// one without a link. A missing mount is not an error.
	Unmount(ctx context.Context, remote, local string) error
}

// Portal is an iSCSI target portal; port 0 means 3260.
type Portal struct {
	Address string
	Port    uint32
}

// AuthType is how an iSCSI login authenticates.
type AuthType int

// The kinds of authentication (iscsidsc.h, ISCSI_AUTH_TYPES).
const (
	NoAuth AuthType = iota
	OneWayCHAP
	MutualCHAP
)

// ISCSILogin asks for a session with a target.
type ISCSILogin struct {
	Portal   Portal
	IQN      string
	Auth     AuthType
	Username string
	Secret   Secret
}

// ISCSI is the machine's initiator. Its service is started when it is not running.
type ISCSI interface {
	AddPortal(ctx context.Context, portal Portal) error
	Discover(ctx context.Context, portal Portal) (iqns []string, err error)
	RemovePortal(ctx context.Context, portal Portal) error
	Portals(ctx context.Context) ([]Portal, error)
	// Connect logs in, now and at each start of the machine. An existing session is not
	// an error.
	Connect(ctx context.Context, login ISCSILogin) error
	// Disconnect ends the session and removes the login. A missing session is not an
	// error.
	Disconnect(ctx context.Context, portal Portal, iqn string) error
	// Disks waits for the first disk of the session and returns the numbers of all. It
	// returns none without a session.
	Disks(ctx context.Context, portal Portal, iqn string) ([]uint32, error)
	// SetMutualSecret sets the secret by which targets authenticate themselves, for all
	// sessions of the machine: 12 to 16 bytes.
	SetMutualSecret(ctx context.Context, secret Secret) error
}

// Service is a Windows service. Numbers are the service control manager's own.
type Service struct {
	DisplayName string
	StartType   uint32 // 0 boot, 1 system, 2 automatic, 3 manual, 4 disabled
	Status      uint32 // 1 stopped … 4 running … 7 paused
}

// System has the operations on the machine itself. Only configured services exist for
// callers; any other is ErrNotFound.
type System interface {
	BIOSSerialNumber(ctx context.Context) (string, error)
	StartService(ctx context.Context, name string) error
	// StopService stops the services that depend on it as well, with force.
	StopService(ctx context.Context, name string, force bool) error
	Service(ctx context.Context, name string) (Service, error)
}
