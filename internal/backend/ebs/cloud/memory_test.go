package cloud

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// stale makes every second describe answer from the previous state of a resource.
func stale() ec2emu.Options {
	o := bench()
	o.World.Knobs.Consistency = world.Consistency{StaleOneIn: 2, StaleFor: world.Span(5 * time.Second)}
	o.World.Knobs.Cooldown = world.CooldownOff
	o.World.Knobs.Times.Optimize = world.Fixed(time.Second)
	return o
}

// Half of the describes show an older state. Such a describe ends no wait, and the
// client never returns a state older than one that it has returned.
func TestMemory_staleDescribesDoNotEndAWait(t *testing.T) {
	emulated(t, stale(), Options{}, func(t *testing.T, r *rig) {
		i := r.instance(t)
		for round := range 30 {
			v := r.volume(t, fmt.Sprint("pvc-", round))
			if err := r.attach(r.ctx, v.ID, i, device(round)); err != nil {
				t.Fatal(err)
			}
			if state := r.attachmentState(t, v.ID); state != Attached {
				t.Errorf("round %d: EC2 has it %q when the attachment was waited for", round, state)
			}
			time.Sleep(time.Duration(rand.Int64N(int64(3 * time.Second))))
			if err := r.detach(r.ctx, v.ID, i); err != nil {
				t.Fatal(err)
			}
			if state := r.attachmentState(t, v.ID); state != "" {
				t.Errorf("round %d: EC2 has it %q when the detachment was waited for", round, state)
			}
		}
	})
}

// attachmentState is the truth about a volume's only attachment.
func (r *rig) attachmentState(t *testing.T, id string) string {
	t.Helper()
	knobs := r.emu.World().Knobs()
	fresh := knobs
	fresh.Consistency = world.Consistency{}
	if err := r.emu.World().SetKnobs(fresh); err != nil {
		t.Fatal(err)
	}
	answer, err := r.emu.World().DescribeVolumes(&world.DescribeVolumesRequest{VolumeIDs: []string{id}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.emu.World().SetKnobs(knobs); err != nil {
		t.Fatal(err)
	}
	for _, v := range answer.Volumes {
		for _, a := range v.Attachments {
			return a.State
		}
	}
	return ""
}

// A wait for a modification does not end for the previous one, although it
// polls at once.
func TestMemory_theModificationBeforeIsNotThisOne(t *testing.T) {
	emulated(t, stale(), Options{}, func(t *testing.T, r *rig) {
		v := r.volume(t, "pvc-1")
		for size := int32(2); size < 30; size++ {
			if _, err := r.ModifyVolume(r.ctx, ModifyInput{VolumeID: v.ID, Size: size}); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			m, err := r.WaitModification(r.ctx, v.ID, Expect{}, func(m Modification, found bool) (bool, error) {
				return found && m.State != Modifying, nil
			})
			if err != nil || m.TargetSize != size || time.Since(began) < 1900*time.Millisecond {
				t.Errorf("after %s: %+v, %v", time.Since(began), m, err)
			}
			if size > 2 {
				if got, err := r.Volume(r.ctx, v.ID); err != nil || got.Size < size-1 {
					t.Errorf("it shrank to %d GiB, it was %d (%v)", got.Size, size-1, err)
				}
			}
			time.Sleep(2 * time.Second)
		}
	})
}

// A volume that was deleted is not shown as one that can be used.
func TestMemory_aDeletedVolumeStaysDeleted(t *testing.T) {
	o := stale()
	o.World.Knobs.Times.Delete = world.Fixed(3 * time.Second)
	emulated(t, o, Options{}, func(t *testing.T, r *rig) {
		v := r.volume(t, "pvc-1")
		if err := r.DeleteVolume(r.ctx, v.ID); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if got, err := r.Volume(r.ctx, v.ID); err == nil && got.State != VolumeDeleting {
				t.Errorf("it is %s", got.State)
			}
			all, err := r.VolumesNamed(r.ctx, "pvc-1")
			if err != nil || len(all) > 0 && all[0].State != VolumeDeleting {
				t.Errorf("by name: %+v, %v", all, err)
			}
		}
	})
}

// The rules, one by one, without EC2.
func TestMemory_rules(t *testing.T) {
	emulated(t, ec2emu.Options{}, Options{}, func(t *testing.T, _ *rig) {
		start := time.Now()
		at := func(state string, since time.Time) Attachment {
			return Attachment{VolumeID: "vol-1", InstanceID: "i-1", State: state, Since: since}
		}
		shown := func(m *memory, a ...Attachment) string {
			v := m.seenVolume(Volume{ID: "vol-1", State: VolumeInUse, Attachments: a})
			if len(v.Attachments) == 0 {
				return "none"
			}
			return v.Attachments[0].State
		}
		for name, c := range map[string]struct {
			known  Attachment
			fresh  bool
			seen   []Attachment
			expect string
		}{
			"just attached, not shown":                {at(Attaching, start), true, nil, Attaching},
			"attached, an older state":                {at(Attached, start), true, []Attachment{at(Attaching, start)}, Attached},
			"detaching, an older state":               {at(Detaching, start), false, []Attachment{at(Attached, start)}, Detaching},
			"detaching, not shown: it is over":        {at(Detaching, start), false, nil, "none"},
			"detaching what was just attached":        {at(Detaching, start), true, nil, Detaching},
			"attached, another client detaches":       {at(Attached, start), true, []Attachment{at(Detaching, start)}, Detaching},
			"detaching, another client attached it":   {at(Detaching, start), false, []Attachment{at(Attaching, start.Add(time.Minute))}, Attaching},
			"attaching again, the state of the first": {at(Attaching, start.Add(time.Minute)), true, []Attachment{at(Detaching, start)}, Attaching},
			"detaching, a device in use":              {at(Detaching, start), false, []Attachment{at(Busy, start)}, Busy},
		} {
			m := newMemory(10 * time.Second)
			m.answered(c.known, c.fresh)
			if got := shown(m, c.seen...); got != c.expect {
				t.Errorf("%s: %s, want %s", name, got, c.expect)
			}
			time.Sleep(11 * time.Second)
			want := "none"
			if len(c.seen) > 0 {
				want = c.seen[0].State
			}
			if got := shown(m, c.seen...); got != want {
				t.Errorf("%s, later: %s, want %s: EC2 has the last word", name, got, want)
			}
		}
	})
}

func TestMemory_forgets(t *testing.T) {
	emulated(t, ec2emu.Options{}, Options{}, func(t *testing.T, _ *rig) {
		m := newMemory(10 * time.Second)
		for i := range 1000 {
			m.madeVolume(Volume{ID: fmt.Sprint("vol-", i)})
			m.madeSnapshot(Snapshot{ID: fmt.Sprint("snap-", i)})
			time.Sleep(time.Second)
		}
		if len(m.volumes.All()) > 10 || len(m.snapshots.All()) > 10 {
			t.Errorf("%d volumes and %d snapshots are remembered, for 10 s each", len(m.volumes.All()), len(m.snapshots.All()))
		}
	})
}

// A describe may still show the attachment before the last one; its device name must
// not be used for the last one.
func TestMemory_earlierAttachmentHasAnotherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(10 * time.Second)
		before := Attachment{VolumeID: "vol-1", InstanceID: "i-1", Device: "/dev/xvdaa", State: Detaching, Since: time.Now()}
		time.Sleep(5 * time.Second)
		now := Attachment{VolumeID: "vol-1", InstanceID: "i-1", Device: "/dev/xvdab", State: Attaching, Since: time.Now()}
		m.answered(now, true)
		seen := m.seenVolume(Volume{ID: "vol-1", State: VolumeInUse, Attachments: []Attachment{before}})
		if len(seen.Attachments) != 1 || seen.Attachments[0] != now {
			t.Errorf("%+v, want %+v", seen.Attachments, now)
		}
		now.State = Attached
		m.seenVolume(Volume{ID: "vol-1", State: VolumeInUse, Attachments: []Attachment{now}})
		seen = m.seenVolume(Volume{ID: "vol-1", State: VolumeInUse, Attachments: []Attachment{before}})
		if len(seen.Attachments) != 1 || seen.Attachments[0] != now {
			t.Errorf("%+v, want %+v", seen.Attachments, now)
		}
	})
}

// EC2 may report the start of a modification in seconds although its first answer had
// fractions of a second.
func TestMemory_startOfAModificationInSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(10 * time.Second)
		start := time.Now().Truncate(time.Second).Add(461 * time.Millisecond)
		m.changed(Modification{VolumeID: "vol-1", State: Modifying, Start: start})
		seen, _ := m.seenChange("vol-1", Modification{VolumeID: "vol-1", State: Optimizing, Start: start.Truncate(time.Second)}, true)
		if seen.State != Optimizing {
			t.Errorf("%+v, want it to be optimizing", seen)
		}
	})
}
