package cloud

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// transitions does one operation of each kind and waits for it, with calls that
// take no time, so that a wait's delay is the watcher's alone.
type transitions struct {
	*rig
	instance string
	count    int
}

var kindsOfTransitions = []string{"create", "attach", "detach", "modify", "snapshot"}

// slowOnce has the next transition take longer.
func (o *transitions) slowOnce(t *testing.T, takes time.Duration) {
	t.Helper()
	if _, err := o.emu.World().AddFault(world.Fault{Kind: world.Slow, Takes: world.Fixed(takes), Count: 1}); err != nil {
		t.Fatal(err)
	}
}

// prepare returns an operation of the kind that can be begun.
func (o *transitions) prepare(t *testing.T, kind string) func(ctx context.Context) error {
	t.Helper()
	o.count++
	name := fmt.Sprint("pvc-", o.count)
	if kind == "create" {
		return func(ctx context.Context) error { _, err := o.create(ctx, name); return err }
	}
	v := o.volume(t, name)
	attach := func(ctx context.Context) error { return o.attach(ctx, v.ID, o.instance, device(o.count)) }
	switch kind {
	case "attach":
		return attach
	case "detach":
		if err := attach(t.Context()); err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context) error { return o.detach(ctx, v.ID, o.instance) }
	case "modify":
		return func(ctx context.Context) error {
			if _, err := o.ModifyVolume(ctx, ModifyInput{VolumeID: v.ID, Size: 2}); err != nil {
				return err
			}
			_, err := o.WaitModification(ctx, v.ID, Expect{Kind: kind}, func(m Modification, found bool) (bool, error) {
				return found && m.State != Modifying, nil
			})
			return err
		}
	}
	return func(ctx context.Context) error {
		s, err := o.CreateSnapshot(ctx, CreateSnapshotInput{VolumeID: v.ID, Tags: map[string]string{SnapshotNameTag: name}})
		if err != nil {
			return err
		}
		_, err = o.WaitSnapshot(ctx, s.ID, Expect{Kind: kind}, func(s Snapshot, found bool) (bool, error) {
			return found && s.State == SnapshotCompleted, nil
		})
		return err
	}
}

// slowest is the longest that a wait may last beyond the operation itself.
func slowest(kind string) time.Duration { return guess(kind) * 3 / 2 }

// One operation that hangs, or that takes half a minute, delays no later one.
func TestWait_oneSlowOperationDelaysNoLaterOne(t *testing.T) {
	for _, kind := range kindsOfTransitions {
		for _, bad := range []time.Duration{30 * time.Second, time.Hour} {
			t.Run(fmt.Sprint(kind, " that takes ", bad), func(t *testing.T) {
				emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
					o := &transitions{rig: r, instance: r.instance(t)}
					operate := o.prepare(t, kind)
					o.slowOnce(t, bad)
					ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
					defer cancel()
					_ = operate(ctx)
					for i := range 12 {
						operate := o.prepare(t, kind)
						time.Sleep(time.Second)
						began := time.Now()
						if err := operate(r.ctx); err != nil {
							t.Fatal(err)
						}
						if took := time.Since(began); took > 2*time.Second+slowest(kind) {
							t.Errorf("operation %d after the slow one took %s", i+1, took)
						}
					}
				})
			})
		}
	}
}

// Slow, stuck, abandoned and healthy waits of every kind at once: a wait ends at most one
// and a half guesses after its transition.
func TestWait_isPromptAmongSlowAndStuckOnes(t *testing.T) {
	options := bench()
	options.Knobs.Latency = nil
	for seed := range uint64(8) {
		emulated(t, options, Options{}, func(t *testing.T, r *rig) {
			var all sync.WaitGroup
			for worker := range uint64(20) {
				all.Go(func() {
					random := rand.New(rand.NewPCG(seed, worker))
					for range 30 {
						watchOne(t, r, random)
					}
				})
			}
			all.Wait()
		})
	}
}

// watchOne waits for a condition that becomes true at a random time, independent of the
// emulator's describe.
func watchOne(t *testing.T, r *rig, random *rand.Rand) {
	kind := kindsOfTransitions[random.IntN(len(kindsOfTransitions))]
	needs := time.Duration(random.Int64N(int64(2 * guess(kind))))
	switch random.IntN(6) {
	case 0:
		needs = time.Duration(random.Int64N(int64(50 * time.Second))) // slow
	case 1:
		needs = time.Hour // stuck
	}
	now := time.Now()
	e := Expect{Kind: kind, Since: now}
	switch random.IntN(4) {
	case 0:
		e.Since = time.Time{}
	case 1:
		e.Since = now.Add(-time.Duration(random.Int64N(int64(2 * time.Hour)))) // begun by an earlier process
	case 2:
		e.Since = now.Add(time.Duration(random.Int64N(int64(time.Minute)))) // EC2's clock is ahead of ours
	}
	over := now.Add(needs)
	timeout := time.Duration(1+random.IntN(60)) * time.Second
	ctx, cancel := context.WithTimeout(r.ctx, timeout)
	defer cancel()
	_, err := r.WaitVolume(ctx, fmt.Sprintf("vol-%017x", random.Uint32()), e, func(Volume, bool) (bool, error) {
		return !time.Now().Before(over), nil
	})
	if late := time.Since(over); late > slowest(kind) {
		t.Errorf("%+v: a transition that ended after %s was observed %s later: %v", e, needs, late, err)
	}
}
