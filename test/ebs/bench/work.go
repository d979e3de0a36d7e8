//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/test/ebs/lab"
)

const gibibyte = 1 << 30

// volume is a measured volume.
type volume struct{ name, node, id string }

// phase is one kind of work on all volumes.
type phase struct {
	name           string
	wall, p50, p99 time.Duration
	calls          lab.Calls
	throttled      int
}

// results are the values of a table.
type results struct {
	phases []phase
	single []single
	// idle and peak are resident memory in bytes.
	idle, peak int64
}

// single is one call on its own.
type single struct {
	name string
	took time.Duration
}

// bench drives one driver.
type bench struct {
	settings
	lab     *lab.Lab
	driver  *lab.Process
	volumes []volume
}

func (b *bench) run(ctx context.Context) (r results, err error) {
	if err := b.slowOnes(ctx); err != nil {
		return r, fmt.Errorf("the slow ones before the measurement: %w", err)
	}
	if r.idle, _, err = b.driver.Resident(); err != nil {
		return r, err
	}
	if _, _, err := b.lab.TakeCalls(ctx); err != nil {
		return r, err
	}
	for _, step := range []struct {
		name string
		work func(context.Context, *volume) error
	}{
		{"create", b.create}, {"publish", b.publish}, {"expand",
			func(ctx context.Context, v *volume) error { return b.expand(ctx, v, 20) }},
		{"unpublish", b.unpublish}, {"delete", b.remove},
		{"create again", b.create}, {"modify and expand", b.change}, {"delete again", b.remove},
	} {
		if step.name == "create again" { // names without a token at EC2
			for i := range b.volumes {
				b.volumes[i].name += "-again"
			}
		}
		p, err := b.phase(ctx, step.name, step.work)
		if err != nil {
			return r, err
		}
		r.phases = append(r.phases, p)
		if step.name == "expand" {
			if r.single, err = b.singles(ctx); err != nil {
				return r, err
			}
		}
	}
	_, r.peak, err = b.driver.Resident()
	return r, err
}

// slowOnes creates, attaches, changes and deletes a volume, with slow steps.
func (b *bench) slowOnes(ctx context.Context) error {
	v := volume{name: "pvc-slow", node: b.volumes[0].node}
	for _, step := range []func(context.Context, *volume) error{
		b.create, b.publish, func(ctx context.Context,
			v *volume) error {
			return b.expand(ctx, v, 20)
		}, b.unpublish, b.remove,
	} {
		if err := step(ctx, &v); err != nil {
			return err
		}
	}
	return nil
}

// phase does the work on every volume with all workers.
func (b *bench) phase(ctx context.Context, name string, work func(context.Context, *volume) error) (phase, error) {
	took, failed := make([]time.Duration, len(b.volumes)), make([]error, len(b.volumes))
	next := make(chan int)
	var workers sync.WaitGroup
	began := time.Now()
	for range b.workers {
		workers.Go(func() {
			for i := range next {
				start := time.Now()
				failed[i] = work(ctx, &b.volumes[i])
				took[i] = time.Since(start)
			}
		})
	}
	for i := range b.volumes {
		next <- i
	}
	close(next)
	workers.Wait()
	wall := time.Since(began)
	failed = slices.DeleteFunc(failed, func(err error) bool { return err == nil })
	if len(failed) > 0 {
		return phase{}, fmt.Errorf("%s: %d of %d calls failed, the first with %w",
			name, len(failed), len(b.volumes), failed[0])
	}
	slices.Sort(took)
	calls, throttled, err := b.lab.TakeCalls(ctx)
	return phase{name: name, wall: wall, p50: took[len(took)/2], p99: took[len(took)*99/100], calls: calls,
		throttled: throttled}, err
}

// singles are repeated calls whose result exists already, each alone.
func (b *bench) singles(ctx context.Context) (s []single, err error) {
	for _, one := range []struct {
		name string
		work func(context.Context, *volume) error
	}{
		{"create what exists", b.create}, {"publish what is attached", b.publish},
		{"expand to the size it has", func(ctx context.Context, v *volume) error { return b.expand(ctx, v, 20) }},
	} {
		start := time.Now()
		if err := one.work(ctx, &b.volumes[0]); err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		s = append(s, single{one.name, time.Since(start)})
	}
	_, _, err = b.lab.TakeCalls(ctx)
	return s, err
}

func (b *bench) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, b.deadline)
}

func use() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
	}
}

func (b *bench) create(ctx context.Context, v *volume) error {
	ctx, cancel := b.call(ctx)
	defer cancel()
	created, err := b.driver.Client.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: v.name, CapacityRange: &csi.CapacityRange{RequiredBytes: 10 * gibibyte},
		VolumeCapabilities: []*csi.VolumeCapability{use()}, Parameters: map[string]string{"type": "gp3"},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{
			"topology.ebs.csi.aws.com/zone": "us-west-2a",
		}}}},
	})
	v.id = created.GetVolumeId()
	return err
}

func (b *bench) publish(ctx context.Context, v *volume) error {
	ctx, cancel := b.call(ctx)
	defer cancel()
	_, err := b.driver.Client.ControllerPublishVolume(ctx,
		&csi.ControllerPublishVolumeRequest{VolumeId: v.id, NodeId: v.node, VolumeCapability: use()})
	return err
}

func (b *bench) unpublish(ctx context.Context, v *volume) error {
	ctx, cancel := b.call(ctx)
	defer cancel()
	return b.driver.Client.ControllerUnpublishVolume(ctx,
		&csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: v.node})
}

func (b *bench) expand(ctx context.Context, v *volume, gib int64) error {
	ctx, cancel := b.call(ctx)
	defer cancel()
	_, err := b.driver.Client.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: gib * gibibyte}, VolumeCapability: use(),
	})
	return err
}

func (b *bench) modify(ctx context.Context, v *volume, iops int) error {
	ctx, cancel := b.call(ctx)
	defer cancel()
	return b.driver.Client.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{
		VolumeId: v.id, MutableParameters: map[string]string{"iops": strconv.Itoa(iops)},
	})
}

// change requests a larger size and more IOPS at once, like two callers.
func (b *bench) change(ctx context.Context, v *volume) error {
	modified := make(chan error, 1)
	go func() { modified <- b.modify(ctx, v, 4000) }()
	return errors.Join(b.expand(ctx, v, 30), <-modified)
}

func (b *bench) remove(ctx context.Context, v *volume) error {
	ctx, cancel := b.call(ctx)
	defer cancel()
	return b.driver.Client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
}
