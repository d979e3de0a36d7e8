//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/pprof/profile"
	"golang.org/x/sync/errgroup"
)

const (
	stormTime    = 30 * time.Second
	askEvery     = 500 * time.Millisecond // as often as the controllers publish capacities in a storm, at most
	stormVolumes = 1000                   // that exist before
)

// measureAccount measures which share of the driver's CPU the capacity takes while volumes
// are created and deleted.
func measureAccount(ctx context.Context, s settings) (rows []row, err error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	d, err := startDriver(ctx, s, "account", 0, "--overcommit=1000", "--pprof-address="+address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	for i := range stormVolumes {
		if _, err := d.create(ctx, fmt.Sprintf("before-%d", i), manySize, mounted("ext4"), nil, nil); err != nil {
			return nil, err
		}
	}
	storm, stop := context.WithCancel(ctx)
	defer stop()
	var made, asked atomic.Int64
	group, working := errgroup.WithContext(storm)
	for worker := range atOnce {
		group.Go(func() error { return createAndDelete(working, d, worker, &made) })
	}
	group.Go(func() error { return askCapacity(working, d, &asked) })
	profiled, err := cpuProfile(ctx, address, stormTime)
	stop()
	if err := errors.Join(err, group.Wait()); err != nil {
		return nil, err
	}
	share, total := shareOf(profiled, "local.(*Pool).Capacity", "local.(*Pool).keepMeasured", ".GetCapacity")
	return []row{{
		work:        fmt.Sprintf("CPU of the capacity, of the driver's, while %d volumes are created and deleted next to %d", made.Load(), stormVolumes),
		holdfast:    fmt.Sprintf("%.1f %% of %.1f s, %d GetCapacity", 100*share, total.Seconds(), asked.Load()),
		alternative: "-", measured: "-", ratio: "-", aim: "≤ 5 %",
	}}, nil
}

// createAndDelete creates volumes and deletes them until ctx ends.
func createAndDelete(ctx context.Context, d *driver, worker int, made *atomic.Int64) error {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("storm-%d-%d", worker, i)
		v, err := d.create(context.WithoutCancel(ctx), name, manySize, mounted("ext4"), nil, nil)
		if err != nil {
			return err
		}
		if err := v.delete(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		made.Add(1)
	}
	return nil
}

func askCapacity(ctx context.Context, d *driver, asked *atomic.Int64) error {
	ticks := time.NewTicker(askEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		if _, err := d.GetCapacity(context.WithoutCancel(ctx), &csi.GetCapacityRequest{}); err != nil {
			return err
		}
		asked.Add(1)
	}
}

// freeAddress returns a loopback address that no process uses at the moment.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// cpuProfile profiles a process for some time.
func cpuProfile(ctx context.Context, address string, during time.Duration) (*profile.Profile, error) {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%.0f", address, during.Seconds())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return profile.Parse(response.Body)
}

// shareOf returns which part of a CPU profile was spent in calls of functions, and the time
// of the whole profile.
func shareOf(p *profile.Profile, functions ...string) (share float64, total time.Duration) {
	cpu := len(p.SampleType) - 1
	var within int64
	for _, sample := range p.Sample {
		total += time.Duration(sample.Value[cpu])
		if slices.ContainsFunc(sample.Location, func(l *profile.Location) bool { return inOneOf(l, functions) }) {
			within += sample.Value[cpu]
		}
	}
	return float64(within) / float64(max(total, 1)), total
}

func inOneOf(l *profile.Location, functions []string) bool {
	return slices.ContainsFunc(l.Line, func(line profile.Line) bool {
		return line.Function != nil && slices.ContainsFunc(functions, func(name string) bool { return strings.Contains(line.Function.Name, name) })
	})
}
