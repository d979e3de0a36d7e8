//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	atOnce   = 8       // calls in flight while volumes are made and removed
	manySize = 8 << 20 // bytes of each volume
	oneNode  = "one node: "
)

// many is a driver with many volumes, some of them staged and published.
type many struct {
	*driver
	settings
	volumes []*volume
	loops   []string // those of the machine before
}

// measureMany measures what grows with the number of volumes on a node.
func measureMany(ctx context.Context, s settings) (rows []row, err error) {
	loops, err := filepath.Glob("/sys/block/loop*")
	if err != nil {
		return nil, err
	}
	d, err := startDriver(ctx, s, "many", 0, "--overcommit=1000")
	if err != nil {
		return nil, err
	}
	m := &many{driver: d, settings: s, loops: loops}
	defer func() { err = errors.Join(err, m.end(context.WithoutCancel(ctx))) }()
	return m.measure(ctx)
}

func (m *many) measure(ctx context.Context) ([]row, error) {
	first, err := m.stageSome(ctx, "first")
	if err != nil {
		return nil, err
	}
	if err := m.fill(ctx); err != nil {
		return nil, err
	}
	none, err := m.health(ctx)
	if err != nil {
		return nil, err
	}
	capacity, err := m.capacity(ctx)
	if err != nil {
		return nil, err
	}
	if err := each(m.volumes[m.rounds:m.staged-m.rounds], func(v *volume) error { return v.up(ctx) }); err != nil {
		return nil, err
	}
	last, err := m.stageSome(ctx, "last")
	if err != nil {
		return nil, err
	}
	some, err := m.health(ctx)
	if err != nil {
		return nil, err
	}
	busy, err := m.capacity(ctx)
	if err != nil {
		return nil, err
	}
	memory, err := memoryAtRest(ctx, m.command.Process.Pid)
	if err != nil {
		return nil, err
	}
	volumes, staged := fmt.Sprintf("%d volumes", m.settings.volumes), fmt.Sprintf("%d staged", m.staged)
	return []row{
		times(oneNode+"NodeStage ext4, fresh, with "+staged, last.stage, "the first", first.stage, "≤ 1.3 × the first"),
		times("— mkfs.ext4 alone on a loop device, by hand", last.mkfs, "the first", first.mkfs, "-"),
		times(oneNode+"NodePublish, with "+staged, last.publish, "the first", first.publish, "≤ 1.3 × the first"),
		times(oneNode+"health of "+volumes+", "+staged, some, "with "+strconv.Itoa(m.rounds)+" staged", none, "≤ 1 s"),
		times(oneNode+"GetCapacity with "+volumes+", "+staged, busy, "with "+strconv.Itoa(m.rounds)+" staged", capacity, "≤ 1 ms"),
		{oneNode + "resident memory of the driver, " + volumes + ", " + staged, memory, "-", "-", "-", "≤ 40 MiB"},
	}, nil
}

// steps are the times of what makes one volume usable, and of mkfs by itself.
type steps struct{ stage, publish, mkfs time.Duration }

// stageSome stages and publishes new volumes, one after another, and then runs mkfs as often:
// before, it would leave them a loop device to use again.
func (m *many) stageSome(ctx context.Context, prefix string) (steps, error) {
	var stages, publications []time.Duration
	for i := range m.rounds {
		v, err := m.create(ctx, fmt.Sprintf("%s-%d", prefix, i), manySize, mounted("ext4"), nil, nil)
		if err != nil {
			return steps{}, err
		}
		m.volumes = append(m.volumes, v)
		staged, err := clock(func() error { return v.stage(ctx) })
		if err != nil {
			return steps{}, err
		}
		published, err := clock(func() error { return v.publish(ctx) })
		if err != nil {
			return steps{}, err
		}
		stages, publications = append(stages, staged), append(publications, published)
	}
	formatted, err := repeat(m.rounds, func(int) (time.Duration, error) { return mkfsAlone(ctx, m.dir, manySize) })
	return steps{median(stages), median(publications), formatted}, err
}

// fill creates volumes until all but those of the last step are there.
func (m *many) fill(ctx context.Context) error {
	made := make([]*volume, m.settings.volumes-2*m.rounds)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range made {
		group.Go(func() (err error) {
			made[i], err = m.create(ctx, fmt.Sprintf("fill-%d", i), manySize, mounted("ext4"), nil, nil)
			return err
		})
	}
	err := group.Wait()
	m.volumes = append(m.volumes, slices.DeleteFunc(made, func(v *volume) bool { return v == nil })...)
	return err
}

// health is the time to list the health of all volumes.
func (m *many) health(ctx context.Context) (time.Duration, error) {
	return repeat(m.rounds, func(int) (time.Duration, error) {
		return clock(func() error {
			_, err := m.ControllerListVolumeHealth(ctx, &csi.ControllerListVolumeHealthRequest{})
			return err
		})
	})
}

func (m *many) capacity(ctx context.Context) (time.Duration, error) {
	return repeat(10*m.rounds, func(int) (time.Duration, error) {
		return clock(func() error {
			_, err := m.GetCapacity(ctx, &csi.GetCapacityRequest{})
			return err
		})
	})
}

// memoryAtRest is the resident memory of a process after a minute without work.
func memoryAtRest(ctx context.Context, pid int) (string, error) {
	select {
	case <-time.After(time.Minute):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	return residentMemory(pid)
}

// end removes the volumes, stops the driver, and removes the loop devices that the kernel
// made for them.
func (m *many) end(ctx context.Context) error {
	used, err := m.usedLoops()
	err = errors.Join(err, each(m.volumes, func(v *volume) error { return v.down(ctx) }), m.stop())
	for _, name := range used {
		err = errors.Join(err, removeLoop(name))
	}
	return err
}

// usedLoops names the devices of the volumes that were not there before.
func (m *many) usedLoops() (names []string, err error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, err
		}
		device := filepath.Dir(filepath.Dir(file))
		if strings.HasPrefix(string(backing), m.pool+"/") && !slices.Contains(m.loops, device) {
			names = append(names, filepath.Base(device))
		}
	}
	return names, nil
}

// removeLoop removes a free loop device; one that another process uses by now stays.
func removeLoop(name string) error {
	index, err := strconv.Atoi(strings.TrimPrefix(name, "loop"))
	if err != nil {
		return err
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = control.Close() }()
	err = unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, index)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

func each(volumes []*volume, do func(*volume) error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, v := range volumes {
		group.Go(func() error { return do(v) })
	}
	return group.Wait()
}
