package health

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// pollList takes the health of all volumes from one complete list.
func (c *Controller) pollList(ctx context.Context, canGet bool) {
	volumes := c.bound()
	began := time.Now()
	found, err := c.list(ctx)
	c.metrics.probe(err, time.Since(began))
	if err != nil {
		// An error means neither an adverse condition nor recovery, and the complete
		// lists are not consecutive any more.
		clear(c.absent)
		c.metrics.polled(volumes, len(volumes))
		if !ended(ctx, err) {
			c.log.WarnContext(ctx, "cannot list volume health; it stays as it was", "error", err)
		}
		return
	}
	c.retryField()
	var unwell, missing []bound
	for _, volume := range volumes {
		switch {
		case len(found[volume.handle]) > 0:
			unwell = append(unwell, volume)
		case len(conditionsIn(volume.claim)) > 0:
			missing = append(missing, volume)
		}
	}
	for _, volume := range unwell {
		c.show(ctx, volume.claim, conditionsOf(found[volume.handle]))
	}
	stale := 0
	if canGet {
		stale = c.getEach(ctx, missing)
	} else {
		c.countMissing(ctx, missing)
	}
	c.metrics.polled(c.bound(), stale)
}

// countMissing clears the conditions of volumes that enough consecutive lists lacked.
func (c *Controller) countMissing(ctx context.Context, missing []bound) {
	counts := map[string]int{}
	for _, volume := range missing {
		counts[volume.handle] = c.absent[volume.handle] + 1
		if counts[volume.handle] >= cyclesToRecover {
			c.show(ctx, volume.claim, nil)
		}
	}
	c.absent = counts
}

// pollEach gets the health of every volume with a separate call.
func (c *Controller) pollEach(ctx context.Context) {
	c.retryField()
	stale := c.getEach(ctx, c.bound())
	c.metrics.polled(c.bound(), stale)
}

// getEach gets the health of each of the volumes and writes the conditions. It
// returns the number of calls that failed.
func (c *Controller) getEach(ctx context.Context, volumes []bound) (failed int) {
	errs := make([]error, len(volumes))
	var group errgroup.Group
	group.SetLimit(c.options.Parallel)
	for i, volume := range volumes {
		group.Go(func() error {
			began := time.Now()
			entries, err := c.get(ctx, volume.handle)
			c.metrics.probe(err, time.Since(began))
			if errs[i] = err; err == nil {
				c.show(ctx, volume.claim, conditionsOf(entries))
			}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	var first error
	for _, err := range errs {
		if err != nil {
			failed++
			first = err
		}
	}
	if first != nil && !ended(ctx, first) {
		c.log.WarnContext(ctx, "cannot get the health of volumes; it stays as it was", "volumes", failed, "first error", first)
	}
	return failed
}
