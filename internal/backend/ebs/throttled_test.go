package ebs

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// throttledVolumes is what the buckets are emptied several times with; the table
// of the benchmarks and make test-all take five times as many.
var throttledVolumes = flag.Int("throttled.volumes", 1000, "volumes of TestThrottled")

// TestThrottled is a thousand volumes under the token buckets that EC2 has by
// default, in virtual time: no call fails that a longer wait serves, few are
// throttled, and the work is not much slower than the buckets allow. With -v it
// prints the table of docs/reference/benchmarks.md (make bench-ebs).
func TestThrottled(t *testing.T) {
	t.Parallel()
	volumes := *throttledVolumes
	if testing.Short() {
		volumes = 300
	}
	o := usual()
	o.Knobs.Throttling = ec2emu.Throttling{Preset: ec2emu.Default}
	staged(t, o, func(s *stage) {
		s.change(func(k *world.Knobs) { k.Cooldown = world.CooldownOff })
		h := &herd{stage: s, process: s.start(Options{}), ids: make([]string, volumes)}
		for range (volumes + 19) / 20 {
			id, err := s.emu.World().RunInstance(world.InstanceSpec{Zone: testZone})
			if err != nil {
				s.Fatal(err)
			}
			h.nodes = append(h.nodes, id)
		}
		time.Sleep(time.Minute)
		use := backend.Capability{Mode: backend.SingleNodeWriter}
		h.slowStart(use)
		t.Logf("| Work on %d volumes | wall | the bucket alone | p50 | p99 | EC2 calls | throttled |", volumes)
		h.phase("create", "CreateVolume", func(ctx context.Context, i int) (err error) {
			v, err := h.CreateVolume(ctx, guard.CreateRequest{
				Name: fmt.Sprint("pvc-", i), Range: backend.SizeRange{Required: 10 * gib}, Capabilities: []backend.Capability{use},
				Topology: &backend.TopologyRequirement{Requisite: []backend.Topology{{zoneKey: testZone}}},
			})
			h.ids[i] = v.ID
			return err
		})
		h.phase("publish", "AttachVolume", func(ctx context.Context, i int) error {
			_, err := h.Attach(ctx, h.ids[i], h.nodes[i/20], backend.AttachSpec{Capability: use})
			return err
		})
		h.phase("expand", "ModifyVolume", func(ctx context.Context, i int) error {
			_, err := h.Expand(ctx, h.ids[i], backend.SizeRange{Required: 20 * gib})
			return err
		})
		h.phase("unpublish", "DetachVolume", func(ctx context.Context, i int) error { return h.Detach(ctx, h.ids[i], h.nodes[i/20]) })
		h.phase("delete", "DeleteVolume", func(ctx context.Context, i int) error { return h.DeleteVolume(ctx, h.ids[i]) })
	})
}

// herd is many volumes.
type herd struct {
	*stage
	process
	ids, nodes []string
}

// slowStart has the first transitions of each kind take half a minute: the
// measurements must not depend on what came first.
func (h *herd) slowStart(use backend.Capability) {
	h.Helper()
	_, err := h.emu.World().AddFault(world.Fault{Kind: world.Slow, Takes: world.Fixed(30 * time.Second), Count: 4})
	h.must(err)
	id := h.volume(h.process, "pvc-slow")
	_, err = h.Attach(h.Context(), id, h.nodes[0], backend.AttachSpec{Capability: use})
	h.must(err)
	_, err = h.Expand(h.Context(), id, backend.SizeRange{Required: 200 * gib})
	h.must(err)
	h.must(h.Detach(h.Context(), id, h.nodes[0]))
	h.must(h.DeleteVolume(h.Context(), id))
	time.Sleep(time.Minute) // the buckets fill up
	h.emu.Reset()
}

// phase does one thing with every volume, a hundred at a time, each within the
// minute that a sidecar gives a call.
func (h *herd) phase(name, action string, work func(ctx context.Context, i int) error) {
	const workers, deadline = 100, time.Minute
	took, next := make([]time.Duration, len(h.ids)), make(chan int)
	var all sync.WaitGroup
	began := time.Now()
	for range workers {
		all.Go(func() {
			for i := range next {
				start := time.Now()
				ctx, cancel := context.WithTimeout(h.Context(), deadline)
				if err := work(ctx, i); err != nil {
					h.Errorf("%s volume %d after %v: %v", name, i, time.Since(start), err)
				}
				cancel()
				took[i] = time.Since(start)
			}
		})
	}
	for i := range h.ids {
		next <- i
	}
	close(next)
	all.Wait()
	wall := time.Since(began)
	h.judge(name, action, wall, took)
	time.Sleep(time.Minute) // the buckets fill up
	h.emu.Reset()
}

// judge compares with what the action's bucket allows: its burst, and then 5 a second.
func (h *herd) judge(name, action string, wall time.Duration, took []time.Duration) {
	burst := 50
	if action == "CreateVolume" || action == "DeleteVolume" {
		burst = 100
	}
	least := time.Duration(max(len(took)-burst, 0)) * time.Second / 5
	slices.Sort(took)
	of := h.emu.Statistics().Actions[action]
	h.Logf("| %s | %.0f s | %.0f s | %.1f s | %.1f s | %d | %d |", name, wall.Seconds(), least.Seconds(),
		took[len(took)/2].Seconds(), took[len(took)*99/100].Seconds(), of.Calls, of.Throttled)
	if of.Throttled*50 > of.Calls && len(took) >= 1000 {
		h.Errorf("%s: %d of %d calls of %s were throttled; 2 %% are too many", name, of.Throttled, of.Calls, action)
	}
	if limit := least*105/100 + 10*time.Second; wall > limit {
		h.Errorf("%s took %v; the bucket allows it in %v", name, wall, least)
	}
}
