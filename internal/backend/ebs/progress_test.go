package ebs

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// tracked are the operations of a tracker as text, by object.
func tracked(tracker *progress.Tracker) map[string]string {
	texts := map[string]string{}
	for _, one := range tracker.List() {
		var meter progress.Meter
		texts[one.Object] = meter.Observe(time.Now(), one).String()
	}
	return texts
}

// CreateSnapshot returns before EC2 has uploaded the snapshot. Callers repeat it, and each
// repeat shows how far the upload is.
func TestCreateSnapshot_reportsTheUpload(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		s.change(func(k *world.Knobs) { k.Times.Snapshot = world.Fixed(100 * time.Second) })
		p := s.start(Options{})
		v := s.create(p, creation("pvc-1"))
		var tracker progress.Tracker
		create := func(name string) backend.Snapshot {
			made, err := p.CreateSnapshot(tracker.For(s.Context(), "CreateSnapshot", name), snapshotOf(name, v.ID))
			s.must(err)
			return made
		}
		create("one")
		if got := tracked(&tracker)["one"]; got != "uploading 0 %" {
			s.Errorf("at the beginning: %q", got)
		}
		time.Sleep(45 * time.Second)
		create("one")
		other := create("two")
		if got := tracked(&tracker); got["one"] != "uploading 45 %" || got["two"] != "uploading 0 %" {
			s.Errorf("after 45 s: %q", got)
		}
		s.must(p.DeleteSnapshot(tracker.For(s.Context(), "DeleteSnapshot", other.ID), other.ID))
		if got := tracked(&tracker); len(got) != 1 {
			s.Errorf("after one was deleted: %q", got)
		}
		time.Sleep(time.Minute)
		if made := create("one"); !made.Ready || len(tracker.List()) != 0 {
			s.Errorf("at the end: %+v, %q", made, tracked(&tracker))
		}
	})
}

func TestExpand_reportsTheModification(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		s.change(func(k *world.Knobs) { k.Times.Modify = world.Fixed(100 * time.Second) })
		p := s.start(Options{})
		id := s.volume(p, "pvc-1")
		var tracker progress.Tracker
		ended := make(chan error, 1)
		go func() {
			ctx := tracker.For(s.Context(), "ControllerExpandVolume", id)
			_, err := p.Expand(ctx, id, backend.SizeRange{Required: 20 * gib})
			ended <- err
		}()
		time.Sleep(52 * time.Second)
		var seen []progress.Operation
		for len(ended) == 0 {
			seen = append(seen, tracker.List()...)
			time.Sleep(10 * time.Second)
		}
		s.must(<-ended)
		if len(seen) < 3 {
			s.Fatalf("seen: %+v", seen)
		}
		for _, one := range seen {
			if one.Object != id || one.Doing != "modifying" || one.Unit != progress.Percent || one.Total != 100 {
				s.Errorf("seen: %+v", seen)
			}
		}
		if left := tracker.List(); len(left) > 0 {
			s.Errorf("after the call, %+v runs", left)
		}
	})
}

// A restored volume is usable before EC2 has loaded its data.
func TestVolumeHealth_reportsTheInitialization(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		s.change(func(k *world.Knobs) { k.Times.Initialize = world.Fixed(100 * time.Second) })
		p := s.start(Options{})
		v := s.create(p, creation("pvc-1"))
		taken := s.snapshot(p, snapshotOf("one", v.ID))
		time.Sleep(time.Minute)
		restored := creation("restored")
		restored.Source.SnapshotID = taken.ID
		restored.Range = backend.SizeRange{}
		r := s.create(p, restored)
		var tracker progress.Tracker
		ask := func(ctx context.Context, id string) {
			problems, err := p.VolumeHealth(tracker.For(ctx, "GetVolumeHealth", id), id)
			s.must(err)
			if len(problems) > 0 {
				s.Errorf("problems of %s: %+v", id, problems)
			}
		}
		ask(s.Context(), v.ID)
		time.Sleep(30 * time.Second)
		ask(s.Context(), r.ID)
		if seen := tracker.List(); len(seen) != 1 || seen[0].Object != r.ID || seen[0].Doing != "initializing" || seen[0].Done < 25 || seen[0].Done > 40 {
			s.Errorf("the operations are %+v", seen)
		}
		time.Sleep(2 * time.Minute)
		ask(s.Context(), r.ID)
		if seen := tracker.List(); len(seen) != 0 {
			s.Errorf("after the data was loaded, %+v runs", seen)
		}
	})
}
