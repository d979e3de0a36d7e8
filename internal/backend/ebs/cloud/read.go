package cloud

import "context"

// Volume describes a volume; ErrNotFound. One that this client has just created
// is waited for until EC2 shows it.
func (c *Client) Volume(ctx context.Context, id string) (Volume, error) { return Volume{}, errNotYet }

// VolumesNamed finds the volumes whose tag CSIVolumeName is the name, oldest first.
func (c *Client) VolumesNamed(ctx context.Context, name string) ([]Volume, error) {
	return nil, errNotYet
}

// Instance describes an instance; ErrNotFound.
func (c *Client) Instance(ctx context.Context, id string) (Instance, error) {
	return Instance{}, errNotYet
}

// InstanceType describes an instance type; ErrNotFound. The answer may be up to an hour old.
func (c *Client) InstanceType(ctx context.Context, name string) (InstanceType, error) {
	return InstanceType{}, errNotYet
}

// Modification is the newest modification of a volume; found is false for a
// volume that was never modified.
func (c *Client) Modification(ctx context.Context, volumeID string) (m Modification, found bool, err error) {
	return m, false, errNotYet
}

// Snapshot describes a snapshot; ErrNotFound.
func (c *Client) Snapshot(ctx context.Context, id string) (Snapshot, error) {
	return Snapshot{}, errNotYet
}

// SnapshotsNamed finds the account's snapshots whose tag CSIVolumeSnapshotName
// is the name, oldest first.
func (c *Client) SnapshotsNamed(ctx context.Context, name string) ([]Snapshot, error) {
	return nil, errNotYet
}

// Status is a volume's status check; ErrNotFound.
func (c *Client) Status(ctx context.Context, volumeID string) (Status, error) {
	return Status{}, errNotYet
}

// Zones are the region's availability zones. The answer may be up to ten minutes old.
func (c *Client) Zones(ctx context.Context) ([]Zone, error) { return nil, errNotYet }

// FastRestores are the zones in which fast snapshot restore was asked for.
func (c *Client) FastRestores(ctx context.Context, snapshotID string) ([]FastRestore, error) {
	return nil, errNotYet
}

// LockOf is a snapshot's lock, if it has one.
func (c *Client) LockOf(ctx context.Context, snapshotID string) (Lock, bool, error) {
	return Lock{}, false, errNotYet
}

// ListVolumes lists the volumes that carry the driver's tag: at most limit (0:
// all) after the page that token ends. next is "" at the end. ErrStaleToken.
func (c *Client) ListVolumes(ctx context.Context, token string, limit int) (page []Volume, next string, err error) {
	return nil, "", errNotYet
}

// ListSnapshots lists the account's own snapshots that carry the driver's tag, like ListVolumes.
func (c *Client) ListSnapshots(ctx context.Context, q SnapshotQuery, token string, limit int) (page []Snapshot, next string, err error) {
	return nil, "", errNotYet
}
