package cloud

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// Volume describes a volume; ErrNotFound. If this client has just created it, Volume
// waits until EC2 shows it.
func (c *Client) Volume(ctx context.Context, id string) (Volume, error) {
	q := question[Volume]{"DescribeVolumes", "volume", "vol", "InvalidVolume.NotFound",
		c.lookups.volumes, c.lookups.volumesByID}
	v, err := find(ctx, c, q, id)
	return v.clone(), err
}

// Instance describes an instance; ErrNotFound.
func (c *Client) Instance(ctx context.Context, id string) (Instance, error) {
	q := question[Instance]{"DescribeInstances", "instance", "i", "InvalidInstanceID.NotFound",
		c.lookups.instances, c.lookups.instancesByID}
	i, err := find(ctx, c, q, id)
	i.Devices = slices.Clone(i.Devices)
	return i, err
}

// Snapshot describes a snapshot; ErrNotFound. Like Volume for new ones.
func (c *Client) Snapshot(ctx context.Context, id string) (Snapshot, error) {
	q := question[Snapshot]{"DescribeSnapshots", "snapshot", "snap", "InvalidSnapshot.NotFound",
		c.lookups.snapshots, c.lookups.snapshotsByID}
	s, err := find(ctx, c, q, id)
	s.Tags = maps.Clone(s.Tags)
	return s, err
}

// Status is a volume's status check; ErrNotFound.
func (c *Client) Status(ctx context.Context, volumeID string) (Status, error) {
	q := question[Status]{"DescribeVolumeStatus", "volume", "vol", "InvalidVolume.NotFound", c.lookups.statuses, nil}
	s, err := find(ctx, c, q, volumeID)
	s.Details, s.Events = maps.Clone(s.Details), slices.Clone(s.Events)
	return s, err
}

// VolumesNamed finds the volumes whose tag CSIVolumeName is the name, oldest first.
func (c *Client) VolumesNamed(ctx context.Context, name string) ([]Volume, error) {
	found, _, err := c.lookups.volumesNamed.Get(ctx, name)
	return cloneAll(found), lookupError(err, "DescribeVolumes", "named "+name)
}

// SnapshotsNamed finds the account's snapshots whose tag CSIVolumeSnapshotName
// is the name, oldest first.
func (c *Client) SnapshotsNamed(ctx context.Context, name string) ([]Snapshot, error) {
	found, _, err := c.lookups.snapshotsNamed.Get(ctx, name)
	return slices.Clone(found), lookupError(err, "DescribeSnapshots", "named "+name)
}

// InstanceType describes an instance type; ErrNotFound. The answer may be up to an hour old.
func (c *Client) InstanceType(ctx context.Context, name string) (InstanceType, error) {
	if known, ok := c.lookups.knownTypes.Get(name); ok {
		return known, nil
	}
	got, found, err := c.lookups.types.Get(ctx, name)
	switch {
	case err != nil:
		return InstanceType{}, lookupError(err, "DescribeInstanceTypes", "of "+name)
	case !found:
		return InstanceType{}, missing("DescribeInstanceTypes", "instance type", name, "InvalidInstanceType")
	}
	c.lookups.knownTypes.Set(name, got, typeLifetime)
	return got, nil
}

// Zones are the region's availability zones. The answer may be up to ten minutes old.
func (c *Client) Zones(ctx context.Context) ([]Zone, error) {
	if known, ok := c.lookups.knownZones.Get(everyZone); ok {
		return slices.Clone(known), nil
	}
	got, _, err := c.lookups.zones.Get(ctx, everyZone)
	if err != nil {
		return nil, lookupError(err, "DescribeAvailabilityZones", "")
	}
	c.lookups.knownZones.Set(everyZone, got, zoneLifetime)
	return slices.Clone(got), nil
}

// Modification is the newest modification of a volume; found is false for a
// volume that was never modified.
func (c *Client) Modification(ctx context.Context, volumeID string) (m Modification, found bool, err error) {
	if !isID("vol", volumeID) {
		return m, false, nil
	}
	m, found, err = c.lookups.modifications.Get(ctx, volumeID)
	return m, found, lookupError(err, "DescribeVolumesModifications", "of "+volumeID)
}

// FastRestores are the states of fast snapshot restore, by zone.
func (c *Client) FastRestores(ctx context.Context, snapshotID string) ([]FastRestore, error) {
	if !isID("snap", snapshotID) {
		return nil, nil
	}
	found, _, err := c.lookups.fastRestores.Get(ctx, snapshotID)
	return slices.Clone(found), lookupError(err, "DescribeFastSnapshotRestores", "of "+snapshotID)
}

// LockOf is the lock of a snapshot; false if it has none.
func (c *Client) LockOf(ctx context.Context, snapshotID string) (Lock, bool, error) {
	if !isID("snap", snapshotID) {
		return Lock{}, false, nil
	}
	l, found, err := c.lookups.locks.Get(ctx, snapshotID)
	return l, found, lookupError(err, "DescribeLockedSnapshots", "of "+snapshotID)
}

// question describes how a resource is looked up: by filter, and if that does not find
// it by ID. code is EC2's for one that does not exist.
type question[V any] struct {
	action, kind, prefix, code string
	byFilter, byID             *concurrency.Batcher[string, V]
}

// Intervals at which a new resource is looked up that EC2 does not show yet.
const (
	hiddenFirst   = 100 * time.Millisecond
	hiddenLongest = time.Second
)

// find looks up one resource.
func find[V any](ctx context.Context, c *Client, q question[V], id string) (V, error) {
	var none V
	if !isID(q.prefix, id) {
		return none, missing(q.action, q.kind, id, q.code)
	}
	for wait := hiddenFirst; ; wait = min(2*wait, hiddenLongest) {
		v, found, err := q.byFilter.Get(ctx, id)
		if err != nil || found {
			return v, lookupError(err, q.action, "of "+id)
		}
		if !c.memory.mayAppear(id) {
			break
		}
		if err := concurrency.Sleep(ctx, wait); err != nil {
			return none, lookupError(err, q.action, "of "+id+", which EC2 does not show yet after its creation")
		}
	}
	if q.byID == nil {
		return none, missing(q.action, q.kind, id, q.code)
	}
	v, found, err := q.byID.Get(ctx, id)
	if err == nil && !found {
		err = missing(q.action, q.kind, id, q.code)
	}
	return v, lookupError(err, q.action, "of "+id)
}

// lookupError converts the error of a batcher to an Error.
func lookupError(err error, action, resource string) error {
	var known *Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, concurrency.ErrClosed):
		return &Error{Action: action, resource: resource, Message: errClosed.Error(), sentinel: backend.ErrUnavailable}
	case errors.As(err, &known):
		return err
	}
	return &Error{Action: action, resource: resource, Message: "the deadline passed", ended: err}
}

// isID reports whether an ID has EC2's form: prefix, dash, 8 or 17 hexadecimal digits.
// Others are not sent: EC2 would refuse the whole batch for one, and a filter would
// treat them as patterns.
func isID(prefix, id string) bool {
	digits, ok := strings.CutPrefix(id, prefix+"-")
	return ok && (len(digits) == 8 || len(digits) == 17) && strings.Trim(digits, "0123456789abcdef") == ""
}

func cloneAll(volumes []Volume) []Volume {
	out := slices.Clone(volumes)
	for i := range out {
		out[i] = out[i].clone()
	}
	return out
}
