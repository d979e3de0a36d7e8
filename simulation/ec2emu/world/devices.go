package world

import "errors"

// ErrDeviceBusy is what Devices.Detach answers when the guest uses the device;
// nothing has changed then.
var ErrDeviceBusy = errors.New("device is in use")

// DataSource is where a new volume's data comes from; at most one is set.
type DataSource struct {
	SnapshotID string
	VolumeID   string
}

// DeviceAttachment says which volume an instance sees, and how.
type DeviceAttachment struct {
	InstanceID string
	VolumeID   string
	Name       string // requested name, such as /dev/xvdaa
	// Xen guests see the name itself, others an NVMe controller.
	Xen bool
	// Boot is the volume that the instance started from.
	Boot bool
}

// Devices makes data and block devices real. The World calls it while it holds
// its lock, one call at a time, when a transition takes effect. Every method
// can be repeated; sizes are in GiB.
type Devices interface {
	CreateVolume(id string, size int32, from DataSource) error
	GrowVolume(id string, size int32) error
	DeleteVolume(id string) error
	// CreateSnapshot keeps the volume's data of this moment.
	CreateSnapshot(id, volumeID string) error
	CopySnapshot(id, sourceID string) error
	DeleteSnapshot(id string) error
	// AddInstance makes the directory in which the instance's devices appear.
	AddInstance(id string) error
	RemoveInstance(id string) error
	Attach(DeviceAttachment) error
	// Detach takes the device away; ErrDeviceBusy unless force is set.
	Detach(instanceID, volumeID string, force bool) error
	// Prune removes data that belongs to none of these: what a process left
	// that was killed between making it and writing down that it did.
	Prune(volumes, snapshots []string) error
	// Close removes all devices; the data stays.
	Close() error
}
