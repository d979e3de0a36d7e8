package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const crowd = 200

// measureConcurrent stages and publishes many volumes at once: half of them
// fresh, so that mkfs runs beside the mounts of the other half.
func measureConcurrent(ctx context.Context, s settings) ([]row, error) {
	return with(ctx, s, "concurrent", 0, func(d *driver) ([]row, error) {
		volumes, err := prepareCrowd(ctx, d)
		if err != nil {
			return nil, err
		}
		alone, err := clock(func() error { return volumes[0].up(ctx) })
		if err != nil {
			return nil, err
		}
		var mu sync.Mutex
		var formatted []time.Duration
		group, groupCtx := errgroup.WithContext(ctx)
		all, err := clock(func() error {
			for i, v := range volumes[1:] {
				group.Go(func() error {
					took, err := clock(func() error { return v.up(groupCtx) })
					mu.Lock()
					defer mu.Unlock()
					if (i+1)%2 == 0 {
						formatted = append(formatted, took)
					}
					return err
				})
			}
			return group.Wait()
		})
		if err != nil {
			return nil, err
		}
		for _, v := range volumes {
			if err := v.down(ctx); err != nil {
				return nil, err
			}
		}
		return []row{
			{fmt.Sprintf("stage + publish %d volumes at once, half of them fresh", crowd), millis(all), "one formatted volume alone", millis(alone), "-", "-"},
			{"of these, a formatted volume: median and slowest", millis(median(formatted)) + ", " + millis(slices.Max(formatted)), "all of them", millis(all), ratio(float64(median(formatted)), float64(all)), "no call waits on another's mkfs"},
		}, nil
	})
}

// prepareCrowd makes the volumes, every second of them (from the first)
// formatted already.
func prepareCrowd(ctx context.Context, d *driver) ([]*volume, error) {
	volumes := make([]*volume, crowd)
	for i := range volumes {
		v, err := d.create(ctx, fmt.Sprintf("crowd-%d", i), 64<<20, mounted("ext4"), nil, nil)
		if err != nil {
			return nil, err
		}
		volumes[i] = v
		if i%2 != 0 {
			continue
		}
		if err := v.stage(ctx); err != nil {
			return nil, err
		}
		if err := v.unstage(ctx); err != nil {
			return nil, err
		}
	}
	return volumes, nil
}
