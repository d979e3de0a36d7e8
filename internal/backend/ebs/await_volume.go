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
func (c *Controller) awaitVolume(
	ctx context.Context, p plan, created cloud.Volume, began time.Time,
) (cloud.Volume, error) {
	var chosen cloud.Volume
	_, err := c.cloud.WaitNamed(ctx, p.name, expectation(created, began), func(volumes []cloud.Volume) (bool, error) {
		i := slices.IndexFunc(volumes, func(v cloud.Volume) bool { return v.ID == created.ID })
		if i >= 0 && len(living(volumes[i:i+1])) == 0 {
			created = volumes[i]
			return false, errEnded
		}
		// Until the lag has passed, a description may lack a new volume and may show a
		// deleted one.
		sure := time.Since(began) >= c.lag
		live := living(volumes)
		if i < 0 && sure && len(live) == 0 {
			return false, errHidden
		}
		if len(live) == 0 {
			return false, nil
		}
		chosen = live[0]
		return complete(chosen) && (chosen.ID == created.ID || sure), nil
	})
	if errors.Is(err, errHidden) {
		chosen, err = c.awaitUnnamed(ctx, created)
	}
	switch {
	case errors.Is(err, errEnded):
		return cloud.Volume{}, c.failed(ctx, p, created)
	case err != nil:
		return cloud.Volume{}, fmt.Errorf("wait for volume %s to be available: %w", created.ID, err)
	case chosen.ID != created.ID:
		return chosen, c.dismiss(ctx, created, chosen)
	}
	c.backoffs.forget(p.name)
	return chosen, nil
}

// errEnded ends a wait for a volume whose creation failed.
var errEnded = errors.New("the volume failed")

// expectation is when EC2 began to create a volume. For a repeated request it returns an
// earlier time, or one long ago if the volume is complete.
func expectation(v cloud.Volume, began time.Time) cloud.Expect {
	e := cloud.Expect{Kind: "create", Since: time.Now()}
	if complete(v) {
		e.Since = longAgo(began)
	} else if !v.Created.IsZero() && began.Sub(v.Created) > time.Second {
		e.Since = v.Created
	}
	return e
}

// awaitUnnamed waits by its ID for a volume that a lookup by its name does not find: its
// tag was removed, or the volume was deleted.
func (c *Controller) awaitUnnamed(ctx context.Context, created cloud.Volume) (cloud.Volume, error) {
	return c.cloud.WaitVolume(ctx, created.ID, cloud.Expect{Kind: "create", Since: longAgo(time.Now())},
		func(v cloud.Volume, found bool) (bool, error) {
			if !found || len(living([]cloud.Volume{v})) == 0 {
				return false, errEnded
			}
			return complete(v), nil
		})
}

// failed returns the error for a volume that EC2 accepted and did not create. It deletes
// the failed volume, and makes repeats back off, because each would create another one.
func (c *Controller) failed(ctx context.Context, p plan, v cloud.Volume) error {
	how := "vanished while it was being created"
	if v.State == cloud.VolumeError {
		how = "went into the state error"
		if err := c.cloud.DeleteVolume(ctx, v.ID); err != nil && !errors.Is(err, backend.ErrNotFound) {
			c.log.WarnContext(ctx, "cannot delete a volume that failed in EC2; delete it", "volume", v.ID, "error", err)
		}
	}
	key := cmp.Or(p.desired.KMSKeyID, v.KMSKeyID, "the account's default key for EBS")
	if v.KMSKeyID != "" && v.KMSKeyID != key { // the class has an alias or an ID
		key += ", " + v.KMSKeyID
	}
	err := fmt.Errorf("EC2 accepted volume %s, which then %s; the usual cause is a KMS key that the driver's role may not use (%s): "+
		"give the role kms:CreateGrant, kms:Decrypt and kms:GenerateDataKeyWithoutPlaintext on it, and check that the key is enabled",
		v.ID, how, key)
	c.backoffs.note(p.name, err)
	return err
}

// dismiss deletes a volume if an older one has its name, unless a call may have returned
// the younger or an instance uses it. If the deletion fails, the creation fails, because
// otherwise the volume would leak.
func (c *Controller) dismiss(ctx context.Context, created, older cloud.Volume) error {
	unreturned := created.State == cloud.VolumeCreating || created.Created.Sub(older.Created) > olderBy
	if !unreturned || len(created.Attachments) > 0 {
		c.log.WarnContext(ctx, "two volumes have one name; the older one is used and the younger is kept",
			"older", older.ID, "younger", created.ID)
		return nil
	}
	c.log.InfoContext(ctx, "delete the younger of two volumes with one name", "older", older.ID, "younger", created.ID)
	err := c.cloud.DeleteVolume(ctx, created.ID)
	switch {
	case err == nil || errors.Is(err, backend.ErrNotFound):
		return nil
	case errors.Is(err, backend.ErrInUse): // attached since the lookup
		return nil
	}
	return fmt.Errorf("delete volume %s, the younger one of the name of %s: %w", created.ID, older.ID, err)
}
