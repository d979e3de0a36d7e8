package cloud

import "context"

// WaitVolume looks at a volume until ready says true or fails. found is false
// when EC2 does not show the volume although it had time to.
func (c *Client) WaitVolume(ctx context.Context, id string, e Expect, ready func(v Volume, found bool) (bool, error)) (Volume, error) {
	return Volume{}, errNotYet
}

// WaitNamed looks at the volumes of a name, oldest first, until ready says true or fails.
func (c *Client) WaitNamed(ctx context.Context, name string, e Expect, ready func(v []Volume) (bool, error)) ([]Volume, error) {
	return nil, errNotYet
}

// WaitModification looks at a volume's newest modification until ready says true or fails.
func (c *Client) WaitModification(ctx context.Context, volumeID string, e Expect, ready func(m Modification, found bool) (bool, error)) (Modification, error) {
	return Modification{}, errNotYet
}

// WaitSnapshot looks at a snapshot until ready says true or fails.
func (c *Client) WaitSnapshot(ctx context.Context, id string, e Expect, ready func(s Snapshot, found bool) (bool, error)) (Snapshot, error) {
	return Snapshot{}, errNotYet
}
