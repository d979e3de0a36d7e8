package health

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// lookAtList judges all volumes by one complete list.
func (c *Controller) lookAtList(ctx context.Context, canAsk bool) {
	volumes := c.bound()
	began := time.Now()
	found, err := c.list(ctx)
	c.metrics.probe(err, time.Since(began))
	if err != nil {
		// Neither sickness nor recovery; and the cycles are consecutive no more.
		clear(c.absent)
		c.metrics.looked(volumes, len(volumes))
		if !ended(ctx, err) {
			c.log.WarnContext(ctx, "cannot list volume health; it stays as it was", "error", err)
		}
		return
	}
	c.allow()
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
	if canAsk {
		stale = c.askEach(ctx, missing)
	} else {
		c.countMissing(ctx, missing)
	}
	c.metrics.looked(c.bound(), stale)
}

// countMissing clears a volume that enough lists in a row did not have.
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

// lookAtEach asks for every volume.
func (c *Controller) lookAtEach(ctx context.Context) {
	c.allow()
	stale := c.askEach(ctx, c.bound())
	c.metrics.looked(c.bound(), stale)
}

// askEach asks for each of the volumes and shows the answers. It returns how
// many gave none.
func (c *Controller) askEach(ctx context.Context, volumes []bound) (failed int) {
	errs := make([]error, len(volumes))
	var group errgroup.Group
	group.SetLimit(c.options.Parallel)
	for i, volume := range volumes {
		group.Go(func() error {
			began := time.Now()
			entries, err := c.ask(ctx, volume.handle)
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
		c.log.WarnContext(ctx, "cannot ask for the health of volumes; it stays as it was", "volumes", failed, "one of the errors", first)
	}
	return failed
}
