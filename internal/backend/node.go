package backend

import "context"

// NodeInfo says who this machine is to the backend.
type NodeInfo struct {
	ID       string
	Topology Topology
	// MaxVolumes is 0 when the backend sets no limit.
	MaxVolumes int64
}

// DeviceRequest asks for a volume's block device on this machine.
type DeviceRequest struct {
	VolumeID       string
	PublishContext map[string]string
	// VolumeContext is the volume's own, such as which partition is meant.
	VolumeContext map[string]string
	// ReadOnly has the volume's device refuse writes, of all of its users: a
	// volume has one device. The caller makes sure that no user needs the other
	// access. Without it the device accepts writes again, if it can.
	ReadOnly bool
	// Keep makes the device outlive Device.Release without a user, as raw
	// block use needs. Without it the device lives as long as something (the
	// caller, a mount) has it open, so that a crash cannot leak it.
	Keep bool
}

// Device is a block device that was verified to be the volume's.
type Device struct {
	Path       string // a node that exists, such as /dev/loop3
	Number     uint64 // st_rdev
	Size       int64  // bytes
	SectorSize int    // bytes, logical
	ReadOnly   bool
	// Discard reports whether freed blocks shall be given back: mkfs and mounts
	// of a device without it must not discard.
	Discard bool
	// Format says how a filesystem shall be made on it.
	Format FormatOptions
	// Close closes the device for the caller; nil if there is nothing to close.
	Close func() error
}

// FormatOptions are options for mkfs; zero values leave the choice to it. What a
// filesystem does not have is ErrInvalid.
type FormatOptions struct {
	// BlockSize, InodeSize, BytesPerInode and ClusterSize are in bytes.
	BlockSize, InodeSize, BytesPerInode, ClusterSize int64
	Inodes                                           int64
	// BigAlloc and Encrypt are features of ext4.
	BigAlloc, Encrypt bool
	// LegacyXFS makes an xfs that Linux 5.4 and older can mount.
	LegacyXFS bool
}

// Release closes the device for the caller. It may be called on every path.
func (d *Device) Release() error {
	if d == nil || d.Close == nil {
		return nil
	}
	err := d.Close()
	d.Close = nil
	return err
}

// Node is the half of a backend that turns a volume into a block device of
// this machine. Everything above the device (probe, mkfs, mount, growth) is
// package node's and the same for all backends.
type Node interface {
	NodeInfo(ctx context.Context) (NodeInfo, error)
	// OpenDevice makes the volume's device present and returns it, the one that
	// is there already if there is one, with the access that was asked for.
	// ErrNotFound: no such volume. ErrPrecondition: the device is there and its
	// access cannot be changed.
	OpenDevice(ctx context.Context, request DeviceRequest) (*Device, error)
	// Devices lists the volume's devices that are present now, without opening
	// them; none is not an error, nor is an unknown volume.
	Devices(ctx context.Context, volumeID string) ([]Device, error)
	// ResizeDevice makes this machine see the volume's current size on all its
	// devices and returns it in bytes; 0 when no device is present.
	ResizeDevice(ctx context.Context, volumeID string) (int64, error)
	// CloseDevice removes the volume's devices that nothing uses. A device still
	// in use is ErrInUse. None present, or an unknown volume, is not an error.
	CloseDevice(ctx context.Context, volumeID string) error
}

// FormatMark records what happened to a volume's blocks, as a second lock
// in addition to the content of the device.
type FormatMark struct {
	// FSType is the filesystem that mkfs was started for; "" means never.
	FSType string
	// Done is false from before mkfs starts until after it succeeded: such a
	// device was blank, and only mkfs has written to it.
	Done bool
	// Resizing is true from before resize2fs starts until after it succeeded. The
	// mark is valid until the machine reboots: a killed resize2fs leaves a prefix of
	// its writes, which e2fsck repairs; a power loss leaves any of them.
	Resizing bool
}

// FormatRecorder is a Node that keeps format marks durably with the volume.
type FormatRecorder interface {
	FormatMark(ctx context.Context, volumeID string) (FormatMark, error)
	SetFormatMark(ctx context.Context, volumeID string, mark FormatMark) error
}

// WrittenLister is a Node that knows which parts of a volume were ever written,
// so that a blank volume can be proven to be blank: the rest is zeros.
type WrittenLister interface {
	// WrittenRanges calls visit for each range, in bytes and ascending, that may
	// contain other bytes than zeros. What is in the page cache of the volume's device
	// was written out by the caller. An error of visit ends it and is returned.
	// ErrUnsupported when the ranges of this volume are not known.
	WrittenRanges(ctx context.Context, volumeID string, visit func(offset, length int64) error) error
}

// EphemeralSpec asks for an inline volume (pod.spec.volumes[].csi).
type EphemeralSpec struct {
	// Handle is the CO's volume_id, "csi-" and 64 hexadecimal digits.
	Handle string
	// Target is the path it will be mounted at, recorded so that a sweep after a
	// crash can determine whether the volume is still in use.
	Target string
	// Attributes are the pod author's, without the keys of the CO.
	Attributes map[string]string
	// Owner are the CO's pod keys, for an operator who reads the record.
	Owner map[string]string
}

// EphemeralVolume is an inline volume that exists.
type EphemeralVolume struct {
	VolumeID string // for the Node methods
	Handle   string
	Target   string
	Size     int64 // bytes
}

// Ephemeral is a Node that serves CSI inline volumes: it makes them and
// removes them without any controller.
type Ephemeral interface {
	// CreateEphemeral returns the existing volume of the handle if there is one.
	CreateEphemeral(ctx context.Context, spec EphemeralSpec) (EphemeralVolume, error)
	// EphemeralByHandle finds one; ErrNotFound. With any other error VolumeID and
	// Handle are set only if the storage of the volume is known to have failed: its
	// devices are then taken down, and the volume is not deleted. An error that may
	// pass comes with a zero EphemeralVolume, and the caller repeats.
	EphemeralByHandle(ctx context.Context, handle string) (EphemeralVolume, error)
	// DeleteEphemeral succeeds when there is none.
	DeleteEphemeral(ctx context.Context, handle string) error
	Ephemerals(ctx context.Context) ([]EphemeralVolume, error)
}

// NodeHealthReporter is a Node that can report problems of a volume, or of
// the storage as a whole, as this machine sees them.
type NodeHealthReporter interface {
	NodeVolumeHealth(ctx context.Context, volumeID string) ([]HealthProblem, error)
	StorageHealth(ctx context.Context) ([]HealthProblem, error)
}
