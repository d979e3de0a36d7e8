package attach

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
)

const (
	// listingRestarts is how often a listing is restarted within one cycle because
	// its page token was rejected.
	listingRestarts = 5
	// maximumPages bounds the listing of a driver that never returns a last page.
	maximumPages = 100_000
)

// publication is one volume at one node, by the driver's IDs.
type publication struct{ volume, node string }

// drift is an attachment whose status the driver's listing contradicts.
type drift struct {
	attached, deleting bool // according to the object
}

// reconcileEvery compares the driver's listing with the attachments. It publishes
// or unpublishes again if two complete listings in a row contradict the same status.
// One contradiction is not enough: the objects are read before the volumes are
// listed, and an operation may finish in between (external-attacher issue 697).
func (c *Controller) reconcileEvery(ctx context.Context, period time.Duration) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	var contradicted map[types.UID]drift
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		found, err := c.reconcile(ctx, contradicted)
		if err != nil {
			if ctx.Err() == nil {
				c.env.Logger.WarnContext(ctx, "cannot compare the driver's volumes with the VolumeAttachments",
					"error", err)
			}
			continue // an incomplete listing neither confirms nor refutes a drift
		}
		contradicted = found
	}
}

// reconcile does one cycle and returns the drift that the next cycle must confirm.
func (c *Controller) reconcile(ctx context.Context, contradicted map[types.UID]drift) (map[types.UID]drift, error) {
	can, err := c.capabilities(ctx)
	if err != nil {
		return nil, err
	}
	if !can.Attach || !can.ListVolumes || !can.PublishedNodes {
		return nil, nil
	}
	known := c.publications()
	if len(known) == 0 {
		return nil, nil
	}
	published, err := c.list(ctx, known)
	if err != nil {
		return nil, err
	}
	found := map[types.UID]drift{}
	for where, va := range known {
		if va.Status.Attached == published[where] || c.locks.locked(va.Name) || c.changedSince(va) {
			continue
		}
		now := drift{attached: va.Status.Attached, deleting: va.DeletionTimestamp != nil}
		if before, repeated := contradicted[va.UID]; !repeated || before != now {
			found[va.UID] = now
			continue
		}
		c.env.Logger.WarnContext(ctx, "the driver's listing contradicts a VolumeAttachment: publishing or unpublishing again",
			"attachment", va.Name, "volume", where.volume, "node", va.Spec.NodeName,
			"attached", va.Status.Attached, "listed", published[where])
		c.forced.set(va.UID, true)
		c.enqueue(va)
	}
	return found, nil
}

// changedSince reports whether an attachment differs from what it was when the listing
// began.
func (c *Controller) changedSince(va *storagev1.VolumeAttachment) bool {
	now, found := c.attachments.Get(va.Name)
	return !found || now.UID != va.UID || now.Status.Attached != va.Status.Attached ||
		(now.DeletionTimestamp == nil) != (va.DeletionTimestamp == nil)
}

// publications are the attachments whose volume and node have known IDs. One whose
// node is not registered can neither be published again nor compared, unless its
// annotations name the node's ID.
func (c *Controller) publications() map[publication]*storagev1.VolumeAttachment {
	known := map[publication]*storagev1.VolumeAttachment{}
	for _, va := range c.attachments.List() {
		if !c.owns(va) {
			continue
		}
		if where, err := c.publicationOf(va); err == nil {
			known[where] = va
		}
	}
	return known
}

func (c *Controller) publicationOf(va *storagev1.VolumeAttachment) (publication, error) {
	if va.DeletionTimestamp != nil {
		what, err := c.published(va)
		return publication{what.handle, what.node}, err
	}
	volume, err := c.subjectOf(va)
	if err != nil {
		return publication{}, err
	}
	node, err := c.registeredID(va)
	return publication{volume.csi().VolumeHandle, node}, err
}

var errEndless = errors.New("the driver's listing does not end: it repeats a page token")

// list pages through the driver's volumes and returns which of the known
// publications exist. Each page has the timeout of one call.
func (c *Controller) list(
	ctx context.Context, known map[publication]*storagev1.VolumeAttachment,
) (map[publication]bool, error) {
	for restart := 0; ; restart++ {
		published, err := c.listOnce(ctx, known)
		if err == nil || !client.IsStaleToken(err) || restart == listingRestarts {
			return published, err
		}
	}
}

func (c *Controller) listOnce(
	ctx context.Context, known map[publication]*storagev1.VolumeAttachment,
) (map[publication]bool, error) {
	published, token, seen := map[publication]bool{}, "", map[string]bool{}
	for range maximumPages {
		page, err := c.page(ctx, token)
		if err != nil {
			return nil, fmt.Errorf("after %d pages: %w", len(seen), err)
		}
		for _, entry := range page.GetEntries() {
			for _, node := range entry.GetStatus().GetPublishedNodeIds() {
				if where := (publication{entry.GetVolume().GetVolumeId(), node}); known[where] != nil {
					published[where] = true
				}
			}
		}
		token = page.GetNextToken()
		if token == "" {
			return published, nil
		}
		if seen[token] {
			return nil, errEndless
		}
		seen[token] = true
	}
	return nil, errEndless
}

func (c *Controller) page(ctx context.Context, token string) (*csi.ListVolumesResponse, error) {
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	return c.env.CSI.ListVolumes(ctx, &csi.ListVolumesRequest{MaxEntries: c.options.MaxEntries, StartingToken: token})
}
