package ebs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// olderBy is how much older the older of two volumes with one name must be so that no
// call can have returned the younger, because every lookup showed the older.
const olderBy = time.Minute

// CreateVolume creates the volume, or finds the one that has the name.
//
// For a repeat of the same request, EC2 returns the same volume by its client token,
// without a lookup. The wait that follows looks up the name, and so finds an older volume
// whose token has expired (tokens live about 12 h). In any order of crashes, and of two
// controllers, the oldest live volume of a name is the volume, and a younger one that was
// not returned is deleted.
func (c *Controller) CreateVolume(ctx context.Context, spec backend.VolumeSpec) (backend.Volume, error) {
	p, err := c.plan(ctx, spec)
	if err != nil {
		return backend.Volume{}, err
	}
	if err := c.backoffs.check(spec.Name); err != nil {
		return backend.Volume{}, err
	}
	made, err := c.make(ctx, p)
	if err != nil {
		return backend.Volume{}, err
	}
	volume := toVolume(made)
	// A volume of the AWS EBS CSI driver has no tag with its context.
	volume.Context = p.context
	return volume, nil
}

func (c *Controller) make(ctx context.Context, p plan) (cloud.Volume, error) {
	if p.source.VolumeID != "" {
		// The tokens of CopyVolumes are not those of CreateVolume: it would make a
		// second volume next to one that was not copied.
		if v, found, err := c.adopt(ctx, p.name, 0); found || err != nil {
			return v, err
		}
	}
	spent, _ := c.spentTokens.Get(p.name)
	for n := spent + 1; ; n++ {
		began := time.Now()
		if n > tokenSteps {
			// The token is new, so it does not find the volume of an earlier call.
			if v, found, err := c.adopt(ctx, p.name, c.lag); found || err != nil {
				return v, err
			}
		}
		v, err := c.request(ctx, p, tokenAt(p.name, n, began))
		switch {
		case err == nil:
			return c.awaitVolume(ctx, p, v, began)
		case cloud.TokenSpent(err) && n > tokenSteps:
			return cloud.Volume{}, c.tooMany(p.name, n)
		case cloud.TokenSpent(err):
			c.spentTokens.Set(p.name, n, tokenLife)
			continue
		case cloud.Code(err) == "IdempotentParameterMismatch":
			// The token is of another request, whose volume has the name until it is deleted.
			v, found, lookup := c.adopt(ctx, p.name, c.lag)
			if found || lookup != nil {
				return v, lookup
			}
			if n > tokenSteps {
				return cloud.Volume{}, err
			}
		case quota(err):
			return c.adoptOr(ctx, p.name, err)
		default:
			return cloud.Volume{}, err
		}
	}
}

// adoptOr finds the existing volume. EC2 may refuse a repeated request for it because of
// a quota, too (docs/reference/ebs.md). If there is none, adoptOr returns the refusal.
func (c *Controller) adoptOr(ctx context.Context, name string, refusal error) (cloud.Volume, error) {
	if v, found, err := c.adopt(ctx, name, 0); found && err == nil {
		return v, nil
	}
	return cloud.Volume{}, refusal
}

// tooMany is the error if the token of this minute is spent, too. Repeats for the name
// back off, and keep the reason why its last volume failed.
func (c *Controller) tooMany(name string, n int) error {
	reason := c.backoffs.last(name)
	if reason == nil {
		reason = fmt.Errorf("more than %d volumes of this name were created and deleted, the last one within a minute",
			n-1)
	}
	c.backoffs.note(name, reason)
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, reason)
}

func quota(err error) bool {
	return slices.Contains([]string{"VolumeLimitExceeded", "MaxIOPSLimitExceeded", "VolumeIOPSLimit"}, cloud.Code(err))
}

// living are the volumes that exist or are being created.
func living(volumes []cloud.Volume) []cloud.Volume {
	return slices.DeleteFunc(slices.Clone(volumes), func(v cloud.Volume) bool {
		return v.State == cloud.VolumeDeleting || v.State == cloud.VolumeDeleted || v.State == cloud.VolumeError
	})
}

// complete reports whether a volume can be returned.
func complete(v cloud.Volume) bool {
	return v.State == cloud.VolumeAvailable || v.State == cloud.VolumeInUse
}

// adopt waits until the oldest volume of a name is complete. A name without a live
// volume is polled until the timeout, because EC2 does not show new volumes at once.
func (c *Controller) adopt(
	ctx context.Context, name string, timeout time.Duration,
) (v cloud.Volume, found bool, err error) {
	began := time.Now()
	_, err = c.cloud.WaitNamed(ctx, name, cloud.Expect{Kind: "create", Since: longAgo(began)},
		func(volumes []cloud.Volume) (bool, error) {
			live := living(volumes)
			if found = len(live) > 0; !found {
				return time.Since(began) >= timeout, nil
			}
			v = live[0]
			return complete(v), nil
		})
	if err != nil {
		return cloud.Volume{}, false, fmt.Errorf("look up the volume by its name: %w", err)
	}
	return v, found, nil
}

// longAgo makes a wait poll at once.
func longAgo(now time.Time) time.Time { return now.Add(-time.Hour) }
