//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const manyVolumes = 2000

func measureCreate(ctx context.Context, s settings) ([]row, error) {
	return with(ctx, s, "create", 0, func(d *driver) ([]row, error) {
		first, err := createSome(ctx, d, "first", s.rounds)
		if err != nil {
			return nil, err
		}
		if err := fill(ctx, d, manyVolumes); err != nil {
			return nil, err
		}
		last, err := createSome(ctx, d, "last", s.rounds)
		if err != nil {
			return nil, err
		}
		return []row{times(fmt.Sprintf("CreateVolume thin, durable, next to %d volumes", manyVolumes), last,
			"the same with no other volume", first, "≤ 1.2 × the first")}, nil
	})
}

func createSome(ctx context.Context, d *driver, prefix string, rounds int) (time.Duration, error) {
	return repeat(rounds, func(round int) (time.Duration, error) {
		var v *volume
		took, err := clock(func() (err error) {
			v, err = d.create(ctx, fmt.Sprintf("%s-%d", prefix, round), 16<<20, mounted("ext4"), nil, nil)
			return err
		})
		if err != nil {
			return 0, err
		}
		return took, v.delete(ctx)
	})
}

func fill(ctx context.Context, d *driver, count int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range count {
		group.Go(func() error {
			_, err := d.create(ctx, fmt.Sprintf("fill-%d", i), 16<<20, mounted("ext4"), nil, nil)
			return err
		})
	}
	return group.Wait()
}
