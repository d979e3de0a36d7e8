//go:build linux

package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

const crowd = 200

// measureConcurrent stages and publishes many volumes, half of them not yet formatted:
// first one after another, then others all at once. With a global lock both would take
// the same time; without one, the number of cores limits the gain.
func measureConcurrent(ctx context.Context, s settings) ([]row, error) {
	return with(ctx, s, "concurrent", 0, func(d *driver) ([]row, error) {
		inTurn, err := prepareCrowd(ctx, d, "turn")
		if err != nil {
			return nil, err
		}
		serial, err := clock(func() error { return upTogether(ctx, inTurn, 1) })
		if err != nil {
			return nil, err
		}
		atOnce, err := prepareCrowd(ctx, d, "once")
		if err != nil {
			return nil, err
		}
		parallel, err := clock(func() error { return upTogether(ctx, atOnce, crowd) })
		if err != nil {
			return nil, err
		}
		for _, v := range append(inTurn, atOnce...) {
			if err := v.down(ctx); err != nil {
				return nil, err
			}
		}
		return []row{times(fmt.Sprintf("stage + publish %d volumes at once, half of them fresh", crowd), parallel,
			"the same, one after another", serial, "below 1")}, nil
	})
}

func upTogether(ctx context.Context, volumes []*volume, limit int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for _, v := range volumes {
		group.Go(func() error { return v.up(ctx) })
	}
	return group.Wait()
}

// prepareCrowd makes the volumes, every second of them (from the first)
// formatted already.
func prepareCrowd(ctx context.Context, d *driver, prefix string) ([]*volume, error) {
	volumes := make([]*volume, crowd)
	for i := range volumes {
		v, err := d.create(ctx, fmt.Sprintf("%s-%d", prefix, i), 64<<20, mounted("ext4"), nil, nil)
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
