package cloud

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
)

// drop is a fault that loses answers.
func drop(action string, count int) ec2emu.Fault {
	return ec2emu.Fault{Kind: ec2emu.FaultDropReply, Action: action, Count: count}
}

// broken is a fault in EC2.
func broken(action string, count int) ec2emu.Fault {
	return ec2emu.Fault{Kind: ec2emu.FaultError, Action: action, Count: count}
}

// A call without a token is not sent again after a lost answer.
func TestCreateSnapshot_isNotRepeatedAfterALostAnswer(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		v := r.volume(t, "pvc-1")
		in := CreateSnapshotInput{VolumeID: v.ID, Tags: map[string]string{SnapshotNameTag: "snap-1"}}
		for _, f := range []ec2emu.Fault{drop("CreateSnapshot", 1), broken("CreateSnapshot", 1)} {
			r.emu.Reset()
			r.fault(t, f)
			_, err := r.CreateSnapshot(r.ctx, in)
			if !errors.Is(err, backend.ErrUnavailable) || !Uncertain(err) {
				t.Errorf("%s: %v, uncertain is %t", f.Kind, err, Uncertain(err))
			}
			if n := r.calls("CreateSnapshot"); n != 1 {
				t.Errorf("%s: it was sent %d times", f.Kind, n)
			}
		}
	})
}

func TestModifyVolume_isNotRepeatedAfterALostAnswer(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		v := r.volume(t, "pvc-1")
		r.fault(t, drop("ModifyVolume", 1))
		_, err := r.ModifyVolume(r.ctx, ModifyInput{VolumeID: v.ID, Size: 2})
		if !Uncertain(err) || r.calls("ModifyVolume") != 1 {
			t.Errorf("%v, sent %d times", err, r.calls("ModifyVolume"))
		}
		m, found, err := r.Modification(r.ctx, v.ID)
		if err != nil || !found || m.TargetSize != 2 {
			t.Errorf("%+v, %t, %v: it was executed", m, found, err)
		}
	})
}

// Throttled calls were not executed, so calls of every class are repeated.
func TestCall_throttlesAreRepeatedForEveryClass(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		v := r.volume(t, "pvc-1")
		for _, action := range []string{"ModifyVolume", "CreateSnapshot"} {
			r.fault(t, ec2emu.Fault{Kind: ec2emu.FaultThrottle, Action: action, Count: 3})
		}
		if _, err := r.ModifyVolume(r.ctx, ModifyInput{VolumeID: v.ID, Size: 2}); err != nil {
			t.Error(err)
		}
		if _, err := r.CreateSnapshot(r.ctx, CreateSnapshotInput{VolumeID: v.ID}); err != nil {
			t.Error(err)
		}
	})
}

// A request that did not reach EC2 is repeated, too.
func TestCall_whatWasNotSentIsRepeated(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		v := r.volume(t, "pvc-1")
		for _, kind := range []error{errRefused, errNoHost} {
			r.block(kind, 2)
			if _, err := r.CreateSnapshot(r.ctx, CreateSnapshotInput{VolumeID: v.ID}); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestCreateVolume_itsTokenMakesItRepeatable(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		for _, f := range []ec2emu.Fault{drop("CreateVolume", 3), broken("CreateVolume", 3), {Kind: ec2emu.FaultDrop, Action: "CreateVolume", Count: 3}} {
			r.fault(t, f)
		}
		v := r.volume(t, "pvc-1")
		all, err := r.VolumesNamed(r.ctx, "pvc-1")
		if err != nil || len(all) != 1 || all[0].ID != v.ID {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func TestAttachVolume_anErrorAfterALostAnswerIsUncertain(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		v, i := r.volume(t, "pvc-1"), r.instance(t)
		r.emu.Reset()
		r.fault(t, drop("AttachVolume", 1))
		_, err := r.AttachVolume(r.ctx, AttachInput{VolumeID: v.ID, InstanceID: i, Device: device(0)})
		if Code(err) != "VolumeInUse" || !errors.Is(err, backend.ErrInUse) || !Uncertain(err) {
			t.Errorf("%v, uncertain is %t: the first attempt attached it", err, Uncertain(err))
		}
		if n := r.calls("AttachVolume"); n != 2 {
			t.Errorf("it was sent %d times, want 2", n)
		}
		_, err = r.AttachVolume(r.ctx, AttachInput{VolumeID: v.ID, InstanceID: i, Device: device(1)})
		if Uncertain(err) {
			t.Errorf("%v is uncertain: EC2 refused it at once", err)
		}
	})
}

func TestReads_areRepeatedUntilTheContextEnds(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		v := r.volume(t, "pvc-1")
		r.fault(t, ec2emu.Fault{Kind: ec2emu.FaultError, Action: "DescribeVolumes", Count: 8})
		if _, err := r.Volume(r.ctx, v.ID); err != nil {
			t.Error(err)
		}
		r.fault(t, ec2emu.Fault{Kind: ec2emu.FaultError, Action: "DescribeVolumes"})
		ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
		defer cancel()
		began := time.Now()
		_, err := r.Volume(ctx, v.ID)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// The end of its context ends a call at once, during any wait.
func TestCall_itsContextEndsItAtOnce(t *testing.T) {
	options := bench()
	options.Knobs.Throttling.Buckets = map[string]ec2emu.Bucket{"DeleteVolume": {Burst: 1, Refill: 0.001}}
	emulated(t, options, Options{}, func(t *testing.T, r *rig) {
		a, b := r.volume(t, "pvc-1"), r.volume(t, "pvc-2")
		if err := r.DeleteVolume(r.ctx, a.ID); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the first finds out about the limit, the second waits in the queue
			ctx, cancel := context.WithTimeout(r.ctx, time.Second)
			began := time.Now()
			err := r.DeleteVolume(ctx, b.ID)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
			t.Log(err)
		}
	})
}

// A mutation whose caller left while it was under way may have happened.
func TestCall_aCancelledMutationIsUncertain(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		v := r.volume(t, "pvc-1")
		ctx, cancel := context.WithTimeout(r.ctx, 30*time.Millisecond)
		defer cancel()
		_, err := r.ModifyVolume(ctx, ModifyInput{VolumeID: v.ID, Size: 2})
		if !errors.Is(err, context.DeadlineExceeded) || !Uncertain(err) {
			t.Errorf("%v, uncertain is %t", err, Uncertain(err))
		}
	})
}

// Answers that are not EC2's are faults of the way, never panics.
func TestReads_garbledAndInterruptedAnswersAreRepeated(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		v := r.volume(t, "pvc-1")
		for _, status := range []int{http.StatusOK, http.StatusBadGateway} {
			r.fault(t, ec2emu.Fault{Kind: ec2emu.FaultGarble, Action: "DescribeVolumes", Count: 2, Status: status})
			if got, err := r.Volume(r.ctx, v.ID); err != nil || got.ID != v.ID {
				t.Errorf("status %d: %+v, %v", status, got, err)
			}
		}
	})
}

// Every field of every answer may be missing.
func TestAnswers_mayBeEmpty(t *testing.T) {
	emulated(t, bench(), Options{HTTPClient: empty{}}, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
		defer cancel()
		vol, i, snap := "vol-0123456789abcdef0", "i-0123456789abcdef0", "snap-0123456789abcdef0"
		calls := []func() error{
			func() error { _, err := r.Volume(ctx, vol); return err },
			func() error { _, err := r.Instance(ctx, i); return err },
			func() error { _, err := r.Snapshot(ctx, snap); return err },
			func() error { _, err := r.Status(ctx, vol); return err },
			func() error { _, err := r.InstanceType(ctx, "m5.large"); return err },
			func() error { _, err := r.CreateVolume(ctx, small("a")); return err },
			func() error {
				_, err := r.CreateVolume(ctx, CreateVolumeInput{SourceVolumeID: vol, ClientToken: "t"})
				return err
			},
			func() error { _, err := r.CreateSnapshot(ctx, CreateSnapshotInput{VolumeID: vol}); return err },
			func() error { _, err := r.ModifyVolume(ctx, ModifyInput{VolumeID: vol, Size: 2}); return err },
		}
		for n, call := range calls {
			if err := call(); err == nil {
				t.Errorf("call %d made a result from an empty answer", n)
			}
		}
		fine := []func() error{
			func() error { _, err := r.VolumesNamed(ctx, "a"); return err },
			func() error { _, err := r.SnapshotsNamed(ctx, "a"); return err },
			func() error { _, _, err := r.Modification(ctx, vol); return err },
			func() error { _, _, err := r.LockOf(ctx, snap); return err },
			func() error { _, err := r.FastRestores(ctx, snap); return err },
			func() error { _, err := r.Zones(ctx); return err },
			func() error { _, err := r.ListVolumes(ctx); return err },
			func() error { _, err := r.ListSnapshots(ctx, ""); return err },
			func() error {
				_, err := r.AttachVolume(ctx, AttachInput{VolumeID: vol, InstanceID: i, Device: device(0)})
				return err
			},
			func() error { return r.DetachVolume(ctx, vol, i, false) },
			func() error { return r.EnableFastRestore(ctx, snap, []string{zone}) },
			func() error {
				return r.LockSnapshot(ctx, LockInput{SnapshotID: snap, Mode: "governance", Duration: 1})
			},
			func() error { return r.CreateTags(ctx, []string{vol}, map[string]string{"a": "b"}) },
		}
		for n, call := range fine {
			if err := call(); err != nil {
				t.Errorf("call %d: %v", n, err)
			}
		}
	})
}

// An empty list is left out of a request, and EC2 then takes it for everything.
func TestMutations_ofEmptyListsAreNotSent(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		for _, err := range []error{
			r.DeleteTags(r.ctx, []string{"vol-0123456789abcdef0"}, nil), // EC2 would remove all tags
			r.DeleteTags(r.ctx, nil, []string{"a"}),
			r.CreateTags(r.ctx, nil, map[string]string{"a": "b"}),
			r.EnableFastRestore(r.ctx, "snap-0123456789abcdef0", nil),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		for _, describe := range []func() (int, error){
			func() (int, error) { m, err := r.describeVolumes(r.ctx, nil); return len(m), err },
			func() (int, error) { m, err := r.describeVolumesByID(r.ctx, nil); return len(m), err },
			func() (int, error) { m, err := r.describeVolumesNamed(r.ctx, nil); return len(m), err },
			func() (int, error) { m, err := r.describeInstances(r.ctx, nil); return len(m), err },
			func() (int, error) { m, err := r.describeInstancesByID(r.ctx, nil); return len(m), err },
			func() (int, error) { m, err := r.describeInstanceTypes(r.ctx, nil); return len(m), err },
			func() (int, error) { m, err := r.describeModifications(r.ctx, nil); return len(m), err },
			func() (int, error) { m, err := r.describeStatuses(r.ctx, nil); return len(m), err },
			func() (int, error) { m, err := r.describeSnapshots(r.ctx, nil); return len(m), err },
			func() (int, error) { m, err := r.describeSnapshotsByID(r.ctx, nil); return len(m), err },
			func() (int, error) { m, err := r.describeSnapshotsNamed(r.ctx, nil); return len(m), err },
			func() (int, error) { m, err := r.describeFastRestores(r.ctx, nil); return len(m), err },
			func() (int, error) { m, err := r.describeLocks(r.ctx, nil); return len(m), err },
		} {
			if n, err := describe(); n != 0 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		if n := r.calls(""); n != 0 {
			t.Errorf("%d calls were made with empty lists", n)
		}
	})
}

func TestRequests_areTheSameByteForByteWhenRepeated(t *testing.T) {
	tags := map[string]string{"b": "2", "a": "1", "c": "3"}
	for range 20 {
		var keys []string
		for _, tag := range fromTags(tags) {
			keys = append(keys, *tag.Key)
		}
		if !slices.Equal(keys, []string{"a", "b", "c"}) {
			t.Fatalf("the tags are in the order %v", keys)
		}
	}
}
