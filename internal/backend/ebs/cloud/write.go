package cloud

import "context"

// CreateVolume makes a volume. Repeated with its token it is harmless, so it is
// sent again until EC2 answers.
func (c *Client) CreateVolume(ctx context.Context, in CreateVolumeInput) (Volume, error) {
	return Volume{}, errNotYet
}

// CopyVolume makes a volume of another; like CreateVolume.
func (c *Client) CopyVolume(ctx context.Context, in CopyVolumeInput) (Volume, error) {
	return Volume{}, errNotYet
}

// DeleteVolume deletes a volume. ErrNotFound when there is none.
func (c *Client) DeleteVolume(ctx context.Context, id string) error { return errNotYet }

// AttachVolume starts an attachment. It is sent again after a lost answer; an
// error of a later attempt is then Uncertain.
func (c *Client) AttachVolume(ctx context.Context, in AttachInput) (Attachment, error) {
	return Attachment{}, errNotYet
}

// DetachVolume starts a detachment; like AttachVolume.
func (c *Client) DetachVolume(ctx context.Context, volumeID, instanceID string, force bool) error {
	return errNotYet
}

// ModifyVolume starts a modification. It is not sent again after a lost answer:
// the error is then Uncertain.
func (c *Client) ModifyVolume(ctx context.Context, in ModifyInput) (Modification, error) {
	return Modification{}, errNotYet
}

// CreateSnapshot cuts a snapshot; like ModifyVolume.
func (c *Client) CreateSnapshot(ctx context.Context, in CreateSnapshotInput) (Snapshot, error) {
	return Snapshot{}, errNotYet
}

// DeleteSnapshot deletes a snapshot. ErrNotFound when there is none.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error { return errNotYet }

// LockSnapshot locks a snapshot; like ModifyVolume.
func (c *Client) LockSnapshot(ctx context.Context, in LockInput) (Lock, error) {
	return Lock{}, errNotYet
}

// EnableFastRestore enables fast snapshot restore in the zones. It fails when
// one of them was refused.
func (c *Client) EnableFastRestore(ctx context.Context, snapshotID string, zones []string) error {
	return errNotYet
}

// CreateTags sets tags on volumes and snapshots.
func (c *Client) CreateTags(ctx context.Context, ids []string, tags map[string]string) error {
	return errNotYet
}

// DeleteTags removes the tags with these keys, whatever their values. Without
// keys it does nothing.
func (c *Client) DeleteTags(ctx context.Context, ids []string, keys []string) error {
	return errNotYet
}
