package ebs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// errHidden ends a wait for a volume that a lookup by its name does not find.
var errHidden = errors.New("the volume is not found by its name")

// awaitVolume waits until the volume that EC2 returned for a name is complete, or
// until an older one certainly has the name.
func (c *Controller) awaitVolume(ctx context.Context, p plan, mine cloud.Volume, began time.Time) (cloud.Volume, error) {
	var chosen cloud.Volume
	_, err := c.cloud.WaitNamed(ctx, p.name, expectation(mine, began), func(volumes []cloud.Volume) (bool, error) {
		i := slices.IndexFunc(volumes, func(v cloud.Volume) bool { return v.ID == mine.ID })
		if i >= 0 && len(living(volumes[i:i+1])) == 0 {
			mine = volumes[i]
			return false, errEnded
		}
		// Only after the lag is a description certain, both of a volume that it lacks and
		// of a deleted one that it still shows.
		sure := time.Since(began) >= c.lag
		live := living(volumes)
		if i < 0 && sure && len(live) == 0 {
			return false, errHidden
		}
		if len(live) == 0 {
			return false, nil
		}
		chosen = live[0]
		return complete(chosen) && (chosen.ID == mine.ID || sure), nil
	})
	if errors.Is(err, errHidden) {
		chosen, err = c.awaitUnnamed(ctx, mine)
	}
	switch {
	case errors.Is(err, errEnded):
		return cloud.Volume{}, c.failed(ctx, p, mine)
	case err != nil:
		return cloud.Volume{}, fmt.Errorf("wait for volume %s to be available: %w", mine.ID, err)
	case chosen.ID != mine.ID:
		return chosen, c.dismiss(ctx, mine, chosen)
	}
	c.backoffs.forget(p.name)
	return chosen, nil
}

// errEnded ends a wait for a volume whose creation failed.
var errEnded = errors.New("the volume failed")

// expectation is since when EC2 has been creating a volume. A repeat gets one that
// was begun earlier, or is complete.
func expectation(v cloud.Volume, began time.Time) cloud.Expect {
	e := cloud.Expect{Kind: "create", Since: time.Now()}
	if complete(v) {
		e.Since = longAgo(began)
	} else if !v.Created.IsZero() && began.Sub(v.Created) > time.Second {
		e.Since = v.Created
	}
	return e
}

// awaitUnnamed waits for a volume whose tag with the name is gone, or that is.
func (c *Controller) awaitUnnamed(ctx context.Context, mine cloud.Volume) (cloud.Volume, error) {
	return c.cloud.WaitVolume(ctx, mine.ID, cloud.Expect{Kind: "create", Since: longAgo(time.Now())}, func(v cloud.Volume, found bool) (bool, error) {
		if !found || len(living([]cloud.Volume{v})) == 0 {
			return false, errEnded
		}
		return complete(v), nil
	})
}

// failed explains a volume that EC2 accepted and did not create. It deletes the
// remains, and makes repeats back off: each would create another volume.
func (c *Controller) failed(ctx context.Context, p plan, v cloud.Volume) error {
	how := "vanished while it was being created"
	if v.State == cloud.VolumeError {
		how = "went into the state error"
		if err := c.cloud.DeleteVolume(ctx, v.ID); err != nil && !errors.Is(err, backend.ErrNotFound) {
			c.log.WarnContext(ctx, "cannot delete a volume that failed in EC2; delete it", "volume", v.ID, "error", err)
		}
	}
	key := cmp.Or(p.desired.KMSKeyID, v.KMSKeyID, "the account's default key for EBS")
	if v.KMSKeyID != "" && v.KMSKeyID != key { // the class names an alias or an ID
		key += ", " + v.KMSKeyID
	}
	err := fmt.Errorf("EC2 accepted volume %s, which then %s; the usual cause is a KMS key that the driver's role may not use (%s): "+
		"the role needs kms:CreateGrant, kms:Decrypt and kms:GenerateDataKeyWithoutPlaintext on it, and the key must be enabled", v.ID, how, key)
	c.backoffs.note(p.name, err)
	return err
}

// dismiss deletes a volume whose name an older one has, unless a call may have
// returned it or an instance uses it. If that fails, the creation fails, because
// otherwise the volume would leak.
func (c *Controller) dismiss(ctx context.Context, mine, older cloud.Volume) error {
	untold := mine.State == cloud.VolumeCreating || mine.Created.Sub(older.Created) > olderBy
	if !untold || len(mine.Attachments) > 0 {
		c.log.WarnContext(ctx, "two volumes have one name; the older one is used and the younger is kept",
			"older", older.ID, "younger", mine.ID)
		return nil
	}
	c.log.InfoContext(ctx, "delete the younger of two volumes with one name", "older", older.ID, "younger", mine.ID)
	err := c.cloud.DeleteVolume(ctx, mine.ID)
	switch {
	case err == nil || errors.Is(err, backend.ErrNotFound):
		return nil
	case errors.Is(err, backend.ErrInUse): // attached since the lookup
		return nil
	}
	return fmt.Errorf("delete volume %s, the younger one of the name of %s: %w", mine.ID, older.ID, err)
}
