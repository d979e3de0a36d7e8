package world

import "errors"

// ErrDeviceBusy is the error of Devices.Detach if the guest uses the device. The device
// stays.
var ErrDeviceBusy = errors.New("device is in use")

// DataSource is where a new volume's data comes from; at most one is set.
type DataSource struct {
	SnapshotID string
	VolumeID   string
}

// DeviceAttachment describes the device of a volume in an instance.
type DeviceAttachment struct {
	InstanceID string
	VolumeID   string
	Name       string // requested name, such as /dev/xvdaa
	// Xen: the guest shows the name itself, others an NVMe controller.
	Xen bool
	// Boot is the volume that the instance started from.
	Boot bool
}

// Devices implements the data and block devices of volumes. The World calls it with its
// lock when a transition takes effect. Every method is idempotent; sizes are in GiB.
type Devices interface {
	CreateVolume(id string, size int32, from DataSource) error
	GrowVolume(id string, size int32) error
	DeleteVolume(id string) error
	// CreateSnapshot copies the present data of the volume.
	CreateSnapshot(id, volumeID string) error
	CopySnapshot(id, sourceID string) error
	DeleteSnapshot(id string) error
	// AddInstance makes the directory in which the instance's devices appear.
	AddInstance(id string) error
	RemoveInstance(id string) error
	Attach(DeviceAttachment) error
	// Detach removes the device; ErrDeviceBusy if it is in use and force is not set.
	Detach(instanceID, volumeID string, force bool) error
	// Prune removes the data of other volumes and snapshots: a process that was killed
	// may have created it without recording it.
	Prune(volumes, snapshots []string) error
	// Close removes all devices; the data stays.
	Close() error
}
