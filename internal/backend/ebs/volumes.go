package ebs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
)

// EC2's IDs. Others are not sent, because EC2 would refuse the call as malformed.
var (
	volumeID   = regexp.MustCompile(`^vol-([0-9a-f]{8}|[0-9a-f]{17})$`)
	snapshotID = regexp.MustCompile(`^snap-([0-9a-f]{8}|[0-9a-f]{17})$`)
)

// Volume finds a volume by ID; ErrNotFound.
func (c *Controller) Volume(ctx context.Context, id string) (backend.Volume, error) {
	v, err := c.describe(ctx, id)
	if err != nil {
		return backend.Volume{}, err
	}
	return toVolume(v), nil
}

// describe returns a volume that is not being deleted; ErrNotFound. It finds a volume in
// the state error too, so that it can be deleted.
func (c *Controller) describe(ctx context.Context, id string) (cloud.Volume, error) {
	if !volumeID.MatchString(id) {
		return cloud.Volume{}, notAVolume(id)
	}
	v, err := c.cloud.Volume(ctx, id)
	if err == nil && (v.State == cloud.VolumeDeleting || v.State == cloud.VolumeDeleted) {
		err = fmt.Errorf("%w: volume %s is %s", backend.ErrNotFound, id, v.State)
	}
	return v, err
}

// described is the description by EC2 that a volume was made from; nil if it has none.
func described(volume backend.Volume) *cloud.Volume {
	v, ok := volume.Detail.(cloud.Volume)
	if !ok {
		return nil
	}
	return &v
}

// VolumeByName finds the oldest volume of a name, once it is complete; ErrNotFound.
func (c *Controller) VolumeByName(ctx context.Context, name string) (backend.Volume, error) {
	v, found, err := c.adopt(ctx, name, 0)
	if err != nil {
		return backend.Volume{}, err
	}
	if !found {
		return backend.Volume{}, fmt.Errorf("%w: no volume has the name %q", backend.ErrNotFound, name)
	}
	return toVolume(v), nil
}

// toVolume converts a volume for the seam.
func toVolume(v cloud.Volume) backend.Volume {
	volume := backend.Volume{
		ID: v.ID, Name: v.Tags[tags.VolumeName], Size: int64(v.Size) * gib,
		// Only the type: the guard checks a change against it, and the Changer checks the rest.
		Parameters: map[string]string{"type": v.Type},
		Source:     backend.Source{SnapshotID: v.SnapshotID, VolumeID: v.SourceVolumeID},
		Topology:   segments(v), PublishedNodes: publishedNodes(v), Created: v.Created, Detail: v,
	}
	if volume.Source.VolumeID != "" {
		volume.Source.SnapshotID = "" // that of the source volume
	}
	if text, ok := v.Tags[tags.Context]; ok {
		volume.Context = splitContext(text)
	}
	return volume
}

// publishedNodes are the instances that have the volume, with those from which it is
// being detached.
func publishedNodes(v cloud.Volume) []string {
	var nodes []string
	for _, a := range v.Attachments {
		if a.State != cloud.Attaching && a.State != cloud.Detached {
			nodes = append(nodes, a.InstanceID)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// Volumes lists the volumes that a driver created, and those that this process was asked
// to attach. A PersistentVolume can name a volume without the driver's tag, and an
// orchestrator treats a volume that is not listed as detached.
func (c *Controller) Volumes(ctx context.Context, after string, limit int) ([]backend.Volume, error) {
	all, err := c.volumes.page("",
		after, limit, func(v cloud.Volume) string { return v.ID }, func() ([]cloud.Volume, error) {
			listed, err := c.cloud.ListVolumes(ctx)
			if err != nil {
				return nil, err
			}
			others, err := c.requested.missingFrom(ctx, listed, c.cloud.Volume)
			listed = slices.DeleteFunc(append(listed, others...), func(v cloud.Volume) bool { return !complete(v) })
			return append(listed, c.nodeLocal.listed()...), err
		})
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	volumes := make([]backend.Volume, len(all))
	for i, v := range all {
		volumes[i] = toVolume(v)
	}
	return volumes, nil
}

// detachTimeout is how long a deletion waits for a detachment under way.
const detachTimeout = 15 * time.Second

// DeleteVolume deletes a volume that is not attached; ErrInUse names its instances.
func (c *Controller) DeleteVolume(ctx context.Context, id string) error {
	if !volumeID.MatchString(id) {
		return notAVolume(id)
	}
	err := c.cloud.DeleteVolume(ctx, id)
	if !errors.Is(err, backend.ErrInUse) && !errors.Is(err, backend.ErrBusy) {
		return err
	}
	if err := c.awaitDetached(ctx, id); err != nil {
		return err
	}
	return c.cloud.DeleteVolume(ctx, id)
}

// awaitDetached waits for a volume whose attachments are all ending.
func (c *Controller) awaitDetached(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	var instances []string
	inUse := func() error {
		return fmt.Errorf("%w: volume %s is attached to %s; detach it first",
			backend.ErrInUse, id, strings.Join(instances, ", "))
	}
	_, err := c.cloud.WaitVolume(ctx, id, cloud.Expect{Kind: "detach", Since: longAgo(time.Now())},
		func(v cloud.Volume, found bool) (bool, error) {
			instances = nil
			detaching := true
			for _, a := range v.Attachments {
				if a.State != cloud.Detached {
					instances = append(instances, a.InstanceID+" ("+a.State+")")
					detaching = detaching && a.State == cloud.Detaching
				}
			}
			if len(instances) > 0 && !detaching {
				return false, inUse()
			}
			return !found || len(instances) == 0, nil
		})
	if err != nil && len(instances) > 0 && !errors.Is(err, backend.ErrInUse) {
		return inUse()
	}
	return err
}
