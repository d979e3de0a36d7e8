package ebs

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// snapshotsInEC2 are the snapshots that exist, without the lag of describes.
func (s *stage) snapshotsInEC2() []world.Snapshot {
	s.Helper()
	time.Sleep(20 * time.Second)
	answer, err := s.emu.World().DescribeSnapshots(&world.DescribeSnapshotsRequest{Owners: []string{"self"}})
	if err != nil {
		s.Fatal(err)
	}
	return answer.Snapshots
}

func (s *stage) wantSnapshots(n int) {
	s.Helper()
	if got := s.snapshotsInEC2(); len(got) != n {
		s.Errorf("EC2 has %d snapshots; want %d: %+v", len(got), n, got)
	}
}

func snapshotOf(name, volume string) backend.SnapshotSpec {
	return backend.SnapshotSpec{Name: name, SourceID: volume}
}

func (s *stage) snapshot(p process, spec backend.SnapshotSpec) backend.Snapshot {
	s.Helper()
	got, err := p.CreateSnapshot(s.Context(), spec)
	s.must(err)
	return got
}

func TestCreateSnapshot_isThereAndBecomesReady(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{Tags: withTags(s.T, tags.Options{ClusterID: "blue"})})
		v := s.create(p, creation("pvc-1"))
		spec := snapshotOf("snap-1", v.ID)
		spec.Parameters = map[string]string{"tagSpecification_1": "of={{ .VolumeSnapshotNamespace }}"}
		spec.Metadata = map[string]string{"csi.storage.k8s.io/volumesnapshot/namespace": "shop"}
		first := s.snapshot(p, spec)
		want := backend.Snapshot{ID: first.ID, Name: "snap-1", SourceID: v.ID, Size: 8 * gib, Created: first.Created}
		if diff := cmp.Diff(want, first); diff != "" {
			s.Error(diff)
		}
		time.Sleep(3 * time.Second)
		if again := s.snapshot(p, spec); again.ID != first.ID || !again.Ready {
			s.Errorf("the repeat gave %+v", again)
		}
		made := s.snapshotsInEC2()
		if len(made) != 1 || !slices.Contains(made[0].Tags, world.TagItem{Key: "of", Value: "shop"}) || !slices.Contains(made[0].Tags, world.TagItem{Key: "Name", Value: "blue-dynamic-snap-1"}) {
			s.Errorf("in EC2: %+v", made)
		}
		other := s.create(p, creation("pvc-2"))
		_, err := p.CreateSnapshot(s.Context(), snapshotOf("snap-1", other.ID))
		s.want(err, backend.ErrExists, "the name for another volume")
		restored := creation("restored")
		restored.Source.SnapshotID = first.ID
		restored.Range = backend.SizeRange{}
		if r := s.create(p, restored); r.Size != 8*gib || r.Source.SnapshotID != first.ID {
			s.Errorf("restored %+v; want the snapshot's size", r)
		}
		if r := s.create(p, restored); r.Source.SnapshotID != first.ID {
			s.Errorf("restored again %+v", r)
		}
	})
}

// An answer is lost; no second snapshot is made, also when EC2 does not
// show the first at once, and also when the caller left meanwhile.
func TestCreateSnapshot_lostReplyMakesNoSecondOne(t *testing.T) {
	o := usual()
	o.World.Knobs.Consistency = world.Consistency{Visible: world.Fixed(3 * time.Second), Tags: world.Fixed(2 * time.Second)}
	staged(t, o, func(s *stage) {
		p := s.start(Options{})
		v := s.create(p, creation("pvc-1"))
		time.Sleep(time.Minute)
		s.snapshot(p, snapshotOf("first", v.ID)) // the process has been asked before
		time.Sleep(time.Minute)
		s.fault(ec2emu.Fault{Kind: ec2emu.FaultDropReply, Action: "CreateSnapshot", Count: 1})
		s.snapshot(p, snapshotOf("lost", v.ID))
		s.wantSnapshots(2)

		s.fault(ec2emu.Fault{Kind: ec2emu.FaultDropReply, Action: "CreateSnapshot", Count: 1})
		s.want(within(s.Context(), 2*time.Second, func(ctx context.Context) error {
			_, err := p.CreateSnapshot(ctx, snapshotOf("left", v.ID))
			return err
		}), context.DeadlineExceeded, "the caller left")
		s.snapshot(p, snapshotOf("left", v.ID))
		s.wantSnapshots(3)
	})
}

// The process dies after CreateSnapshot, before its reply.
func TestCreateSnapshot_processDiesBeforeTheReply(t *testing.T) {
	o := usual()
	o.World.Knobs.Consistency = world.Consistency{Visible: world.Fixed(3 * time.Second), Tags: world.Fixed(2 * time.Second)}
	staged(t, o, func(s *stage) {
		p := s.start(Options{})
		v := s.create(p, creation("pvc-1"))
		s.snapshot(p, snapshotOf("first", v.ID))
		s.want(within(s.Context(), 140*time.Millisecond, func(ctx context.Context) error {
			_, err := p.CreateSnapshot(ctx, snapshotOf("died", v.ID))
			return err
		}), context.DeadlineExceeded, "the process died")
		s.snapshot(s.start(Options{}), snapshotOf("died", v.ID))
		s.wantSnapshots(2)
	})
}

// A throttled call is repeated, because it was not executed.
func TestCreateSnapshot_isRepeatedWhenThrottled(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		v := s.create(p, creation("pvc-1"))
		s.fault(ec2emu.Fault{Kind: ec2emu.FaultThrottle, Action: "CreateSnapshot", Count: 3})
		s.snapshot(p, snapshotOf("snap-1", v.ID))
		s.change(func(k *world.Knobs) { k.Snapshots.Every = world.Span(15 * time.Second) })
		s.snapshot(p, snapshotOf("snap-2", v.ID)) // waits for EC2's 15 s per volume
		s.wantSnapshots(2)
	})
}

// Two controllers that both act converge on the older one.
func TestCreateSnapshot_twoControllersAtOnce(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		one, other := s.start(Options{}), s.start(Options{})
		v := s.create(one, creation("pvc-1"))
		ids := make([]string, 2)
		var both sync.WaitGroup
		for i, p := range []process{one, other} {
			both.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				ids[i] = s.snapshot(p, snapshotOf("snap-1", v.ID)).ID
			})
		}
		both.Wait()
		if ids[0] != ids[1] {
			s.Errorf("%v; want one snapshot", ids)
		}
		s.wantSnapshots(1)
	})
}

// The repeated call carries out the steps after the creation that failed.
func TestCreateSnapshot_repeatFinishesLockAndFastRestore(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		v := s.create(p, creation("pvc-1"))
		spec := snapshotOf("snap-1", v.ID)
		spec.Parameters = map[string]string{"fastSnapshotRestoreAvailabilityZones": "us-west-2a,us-west-2b", "lockMode": "governance", "lockDuration": "7"}
		s.fault(ec2emu.Fault{Kind: ec2emu.FaultError, Action: "EnableFastSnapshotRestores", Code: "UnauthorizedOperation", Status: 403, Count: 1})
		_, err := p.CreateSnapshot(s.Context(), spec)
		s.want(err, backend.ErrUnavailable, "fast restore is refused")
		s.wantSnapshots(1) // The snapshot stays
		s.fault(ec2emu.Fault{Kind: ec2emu.FaultError, Action: "LockSnapshot", Code: "UnauthorizedOperation", Status: 403, Count: 1})
		_, err = p.CreateSnapshot(s.Context(), spec)
		s.want(err, backend.ErrUnavailable, "the lock is refused")
		p = s.start(Options{})
		first := s.snapshot(p, spec)
		s.wantSnapshots(1)
		lock, locked, err := p.controller.cloud.LockOf(s.Context(), first.ID)
		if err != nil || !locked || time.Until(lock.Expires).Round(time.Hour) != 7*24*time.Hour {
			s.Errorf("lock %+v, %v, %v; want 7 days", lock, locked, err)
		}
		restores, err := p.controller.cloud.FastRestores(s.Context(), first.ID)
		if err != nil || len(restores) != 2 {
			s.Errorf("fast restore %+v, %v; want two zones", restores, err)
		}
		calls := s.calls("LockSnapshot") + s.calls("EnableFastSnapshotRestores")
		s.snapshot(s.start(Options{}), spec)
		if s.calls("LockSnapshot")+s.calls("EnableFastSnapshotRestores") != 0 {
			s.Errorf("completed steps are repeated (%d before)", calls)
		}
		err = p.DeleteSnapshot(s.Context(), first.ID)
		s.want(err, backend.ErrPrecondition, "a locked snapshot")
		if err == nil || !strings.Contains(err.Error(), "locked") || !strings.Contains(err.Error(), "governance") {
			s.Errorf("%v does not name the lock", err)
		}
	})
}

func TestCreateSnapshot_refusesBeforeItActs(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		v := s.create(p, creation("pvc-1"))
		for why, parameters := range map[string]map[string]string{
			"no such zone": {"fastSnapshotRestoreAvailabilityZones": "mars-1a"},
			"lock is over": {"lockMode": "governance", "lockExpirationDate": "1999-01-01T00:00:00Z"},
			"reserved tag": {"tagSpecification_1": "CSIVolumeSnapshotName=x"},
			"unknown key":  {"colour": "blue"},
		} {
			spec := snapshotOf("bad", v.ID)
			spec.Parameters = parameters
			_, err := p.CreateSnapshot(s.Context(), spec)
			s.want(err, backend.ErrInvalid, why)
		}
		_, err := p.CreateSnapshot(s.Context(), snapshotOf("bad", "vol-0123456789abcdef0"))
		s.want(err, backend.ErrNotFound, "no such volume")
		s.wantSnapshots(0)
	})
}

// Snapshots of others are not listed, and pages may be as small as any.
func TestSnapshots_areOurs(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		v := s.create(p, creation("pvc-1"))
		_, err := s.emu.World().AddForeignSnapshot("999999999999", 8, true)
		s.must(err)
		var want []string
		for _, name := range []string{"a", "b", "c"} {
			want = append(want, s.snapshot(p, snapshotOf(name, v.ID)).ID)
			time.Sleep(20 * time.Second)
		}
		slices.Sort(want)
		var got []string
		token := ""
		for {
			page, next, err := p.Snapshots(s.Context(), backend.SnapshotFilter{}, token, 1)
			s.must(err)
			for _, snapshot := range page {
				got = append(got, snapshot.ID)
			}
			if token = next; token == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			s.Errorf("listed %v; want %v", got, want)
		}
		for _, filter := range []backend.SnapshotFilter{{SnapshotID: "snap-0123456789abcdef0"}, {SnapshotID: "nonsense"}, {SourceID: "vol-0123456789abcdef0"}, {SourceID: "nonsense"}} {
			if page, _, err := p.Snapshots(s.Context(), filter, "", 0); err != nil || len(page) != 0 {
				s.Errorf("%+v: %v, %v; want an empty list", filter, page, err)
			}
		}
	})
}

func TestDeleteSnapshot_ofAnImageIsInUse(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		v := s.create(p, creation("pvc-1"))
		snapshot := s.snapshot(p, snapshotOf("snap-1", v.ID))
		time.Sleep(10 * time.Second)
		s.must(s.emu.World().BackImage(snapshot.ID, true))
		s.want(p.DeleteSnapshot(s.Context(), snapshot.ID), backend.ErrInUse, "an image")
		s.must(s.emu.World().BackImage(snapshot.ID, false))
		s.must(p.DeleteSnapshot(s.Context(), snapshot.ID))
		s.must(p.DeleteSnapshot(s.Context(), snapshot.ID))
		s.must(p.DeleteSnapshot(s.Context(), "nonsense"))
		s.wantSnapshots(0)
	})
}

// A snapshot that failed in EC2 is reported as failed, not as one that takes long.
func TestCreateSnapshot_thatFailedSaysSo(t *testing.T) {
	staged(t, usual(), func(s *stage) {
		p := s.start(Options{})
		v := s.create(p, creation("pvc-1"))
		s.volumeFault(world.Fault{Kind: world.SnapshotFails, Count: 1})
		snapshot := s.snapshot(p, snapshotOf("snap-1", v.ID))
		time.Sleep(10 * time.Second)
		_, err := p.CreateSnapshot(s.Context(), snapshotOf("snap-1", v.ID))
		if err == nil || !strings.Contains(err.Error(), "failed in EC2") {
			s.Errorf("got %v; want the failure", err)
		}
		s.must(p.DeleteSnapshot(s.Context(), snapshot.ID))
		s.snapshot(p, snapshotOf("snap-1", v.ID))
	})
}
