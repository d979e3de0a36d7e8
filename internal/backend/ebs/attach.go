package ebs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/attachment"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodelocal"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// newAttachments makes the Machine that attaches and detaches.
func (c *Controller) newAttachments() *attachment.Machine {
	return attachment.New(c.cloud, attachment.Options{
		Stuck: c.options.StuckAfter, Lag: c.lag, Before: c.awaitInitialized, Logger: c.log,
	})
}

// Attach attaches a volume to an instance and returns the publish context, which
// has the device name. See attachment.Machine.
func (c *Controller) Attach(
	ctx context.Context, id, nodeID string, spec backend.AttachSpec,
) (map[string]string, error) {
	if nodelocal.Is(id) {
		return c.attachNodeLocal(ctx, id, nodeID)
	}
	if !volumeID.MatchString(id) {
		return nil, notAVolume(id)
	}
	shared, err := sharedAttachment(spec.Capability, spec.ReadOnly)
	if err != nil {
		return nil, err
	}
	c.requested.add(id)
	device, err := c.attachments.Attach(ctx, id, nodeID,
		attachment.Use{Shared: shared, Initialized: params.WaitsInitialized(spec.Context)})
	if err != nil {
		return nil, err
	}
	return map[string]string{nodelocal.DevicePathKey: device}, nil
}

// Detach detaches a volume from an instance, or from all. See attachment.Machine.
func (c *Controller) Detach(ctx context.Context, id, nodeID string) error {
	if !volumeID.MatchString(id) { // a volume without a valid ID is not attached
		c.nodeLocal.remove(id, nodeID)
		return nil
	}
	err := c.attachments.Detach(ctx, id, nodeID)
	if err == nil {
		c.requested.remove(id)
	}
	return err
}

// sharedAttachment reports whether other instances may attach the volume too. The
// filesystems do not survive two writers, so several instances may mount a volume only
// if none of them writes (EBS user guide, "Attach a volume to multiple instances").
func sharedAttachment(c backend.Capability, readOnly bool) (bool, error) {
	switch c.Mode {
	case backend.MultiNodeReaderOnly:
		return true, nil
	case backend.MultiNodeSingleWriter, backend.MultiNodeMultiWriter:
		if !c.Block && !readOnly {
			return false, fmt.Errorf("%w: access mode %s is not possible for a filesystem that is mounted for writing; choose volumeMode Block, or read-only access",
				backend.ErrInvalid, c.Mode)
		}
		return true, nil
	}
	return false, nil
}

// Pauses between polls of a volume that is being initialized from its snapshot. EC2's
// status may lag by minutes.
const (
	initializationFirst = 15 * time.Second
	initializationMost  = time.Minute
)

// awaitInitialized waits until a volume is initialized from its snapshot, if the
// StorageClass requests that (blockAttachUntilInitialized). A volume of this driver has
// the request in a tag; one of the AWS EBS CSI driver has it in its context only.
func (c *Controller) awaitInitialized(
	ctx context.Context, v cloud.Volume, use attachment.Use, setPhase func(string),
) error {
	if v.SnapshotID == "" || !use.Initialized && !params.WaitsInitialized(splitContext(v.Tags[tags.Context])) {
		return nil
	}
	for {
		status, err := c.cloud.Status(ctx, v.ID)
		switch {
		case errors.Is(err, backend.ErrDenied):
			c.log.Warn("EC2 refuses to show whether the volume is initialized; attaching it without that check",
				"volume", v.ID, "error", err)
			return nil
		case errors.Is(err, backend.ErrNotFound): // not checked yet, or gone
			if _, err := c.describe(ctx, v.ID); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("check whether volume %s is initialized: %w", v.ID, err)
		case status.Details["initialization-state"] == "completed":
			return nil
		}
		setPhase(fmt.Sprintf("volume %s is being initialized from snapshot %s (%d %%), which its StorageClass requires before an attachment",
			v.ID, v.SnapshotID, status.InitializationProgress))
		wait := min(max(status.Remaining, initializationFirst), initializationMost)
		if err := concurrency.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}
