package cloud

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// made makes volumes at once.
func (r *rig) made(t *testing.T, n int) []string {
	t.Helper()
	ids := make([]string, n)
	workers(t, n, n, func(i int) error {
		v, err := r.create(r.ctx, fmt.Sprint("pvc-", i))
		ids[i] = v.ID
		return err
	})
	return ids
}

// One ID that does not exist among 20 is not found, without an error for the others.
func TestVolume_oneMissingAmong20DoesNotFailTheOthers(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		ids := append(r.made(t, 20), "vol-00000000000000bad")
		r.emu.Reset()
		for name, ask := range map[string]func(string) error{
			"volume": func(id string) error { _, err := r.Volume(r.ctx, id); return err },
			"status": func(id string) error { _, err := r.Status(r.ctx, id); return err },
		} {
			workers(t, len(ids), len(ids), func(i int) error {
				err := ask(ids[i])
				if i == 20 {
					if !errors.Is(err, backend.ErrNotFound) || Code(err) != "InvalidVolume.NotFound" {
						t.Errorf("the %s of a missing volume: %v", name, err)
					}
					return nil
				}
				return err
			})
		}
		if n := r.calls("DescribeVolumes"); n > 3 {
			t.Errorf("%d describes of volumes, want two by filter at most and one by ID", n)
		}
	})
}

// Malformed IDs are not sent: EC2 would refuse the whole batch, and a filter would
// read them as patterns.
func TestLookups_malformedIDsAreNotFound(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		r.volume(t, "pvc-1")
		r.emu.Reset()
		for _, id := range []string{"", "vol-", "vol-*", "vol-0123456789abcdef?", "vol-0123456789ABCDEF0", "i-0123456789abcdef0", "not-an-id"} {
			if _, err := r.Volume(r.ctx, id); !errors.Is(err, backend.ErrNotFound) {
				t.Errorf("volume %q: %v", id, err)
			}
			if err := r.DeleteVolume(r.ctx, id); !errors.Is(err, backend.ErrNotFound) {
				t.Errorf("deletion of %q: %v", id, err)
			}
		}
		if _, err := r.Instance(r.ctx, "node-1"); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("instance: %v", err)
		}
		if _, err := r.Snapshot(r.ctx, "snap"); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("snapshot: %v", err)
		}
		if n := r.calls(""); n != 0 {
			t.Errorf("%d calls were made", n)
		}
	})
}

// Names are compared literally, although EC2's filters have wildcards.
func TestVolumesNamed_takesNamesLiterally(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		for _, name := range []string{"a*", "ab", `a\*`, "a?"} {
			r.volume(t, name)
		}
		time.Sleep(time.Minute)
		for _, name := range []string{"a*", `a\*`, "a?"} {
			if all, err := r.VolumesNamed(r.ctx, name); err != nil || len(all) != 1 || all[0].Tags[NameTag] != name {
				t.Errorf("%s: %+v, %v", name, all, err)
			}
		}
		if all, err := r.VolumesNamed(r.ctx, "*"); err != nil || len(all) != 0 {
			t.Errorf("*: %+v, %v", all, err)
		}
	})
}

// lagging describes do not show a new resource for 3 s, nor find it by tag for 3 more.
func lagging() ec2emu.Options {
	o := bench()
	o.World.Knobs.Consistency = world.Consistency{Visible: world.Fixed(3 * time.Second), Tags: world.Fixed(3 * time.Second)}
	return o
}

// A volume that this client has just created exists, although EC2 does not show it yet.
func TestVolume_aNewVolumeThatIsNotVisibleIsWaitedFor(t *testing.T) {
	emulated(t, lagging(), Options{}, func(t *testing.T, r *rig) {
		v, err := r.CreateVolume(r.ctx, small("pvc-1"))
		if err != nil {
			t.Fatal(err)
		}
		all, err := r.VolumesNamed(r.ctx, "pvc-1")
		if err != nil || len(all) != 1 || all[0].ID != v.ID {
			t.Errorf("by name: %+v, %v", all, err)
		}
		got, err := r.Volume(r.ctx, v.ID)
		if err != nil || got.State != VolumeAvailable {
			t.Errorf("by ID: %+v, %v", got, err)
		}
		s, err := r.CreateSnapshot(r.ctx, CreateSnapshotInput{VolumeID: v.ID, Tags: map[string]string{SnapshotNameTag: "snap-1"}})
		if err != nil {
			t.Fatal(err)
		}
		named, err := r.SnapshotsNamed(r.ctx, "snap-1")
		if err != nil || len(named) != 1 || named[0].ID != s.ID {
			t.Errorf("snapshot by name: %+v, %v", named, err)
		}
		if got, err := r.Snapshot(r.ctx, s.ID); err != nil || got.ID != s.ID {
			t.Errorf("snapshot by ID: %+v, %v", got, err)
		}
	})
}

// A new volume that does not appear in time is not found.
func TestVolume_aNewVolumeThatNeverAppearsIsNotFound(t *testing.T) {
	options := bench()
	options.World.Knobs.Encryption.UnusableKeys = []string{"*"}
	emulated(t, options, Options{}, func(t *testing.T, r *rig) {
		in := small("pvc-1")
		in.KMSKeyID, in.Encrypted = "alias/foreign", new(bool)
		*in.Encrypted = true
		v, err := r.CreateVolume(r.ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		gone := errors.New("it has vanished")
		_, err = r.WaitVolume(r.ctx, v.ID, Expect{Kind: "create"}, func(v Volume, found bool) (bool, error) {
			if !found {
				return false, gone
			}
			return v.State == VolumeAvailable, nil
		})
		if took := time.Since(began); !errors.Is(err, gone) || took < 9*time.Second || took > 12*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// The absence of a resource is not cached.
func TestVolume_thatAppearsLaterIsFound(t *testing.T) {
	emulated(t, lagging(), Options{}, func(t *testing.T, r *rig) {
		other, err := r.emu.World().CreateVolume(&world.CreateVolumeRequest{AvailabilityZone: zone, Size: ptr(int32(1))})
		if err != nil {
			t.Fatal(err)
		}
		id := other.VolumeID
		if _, err := r.Volume(r.ctx, id); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("another client's volume that EC2 does not show: %v", err)
		}
		time.Sleep(4 * time.Second)
		if _, err := r.Volume(r.ctx, id); err != nil {
			t.Error(err)
		}
	})
}

func ptr[T any](v T) *T { return &v }

// Each caller has its own timeout.
func TestVolume_aCallerLeavesAndTheOthersStay(t *testing.T) {
	options := bench()
	options.Knobs.Latency = map[string]world.Takes{"*": world.Fixed(5 * time.Second)}
	emulated(t, options, Options{}, func(t *testing.T, r *rig) {
		ids := r.made(t, 10)
		workers(t, 10, 10, func(i int) error {
			ctx, cancel := context.WithTimeout(r.ctx, time.Duration(1+i%2*100)*time.Second)
			defer cancel()
			began := time.Now()
			_, err := r.Volume(ctx, ids[i])
			if i%2 == 1 {
				return err
			}
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
			return nil
		})
	})
}

// Concurrent lookups of an instance type share one call.
func TestInstanceType_aHundredCallersShareOneCall(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		workers(t, 100, 100, func(int) error {
			got, err := r.InstanceType(r.ctx, "m5.large")
			if err == nil && got != (InstanceType{Name: "m5.large", Cards: 1}) {
				t.Errorf("%+v", got)
			}
			return err
		})
		if n := r.calls("DescribeInstanceTypes"); n != 1 {
			t.Errorf("it took %d calls", n)
		}
		if _, err := r.InstanceType(r.ctx, "m0.tiny"); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("an unknown type: %v", err)
		}
	})
}

// Reads do not extend the lifetime of cached answers.
func TestKept_readsDoNotExtendItsLife(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		for range 125 { // two hours and five minutes
			if _, err := r.InstanceType(r.ctx, "m5.large"); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Zones(r.ctx); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if n := r.calls("DescribeInstanceTypes"); n != 3 {
			t.Errorf("an instance type was described %d times in two hours, want 3", n)
		}
		if n := r.calls("DescribeAvailabilityZones"); n < 12 || n > 13 {
			t.Errorf("the zones were described %d times in two hours, want every ten minutes", n)
		}
	})
}

// No more than 200 values go into one filter; EC2 refuses more.
func TestVolumesNamed_aThousandNames(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		r.volume(t, "pvc-7")
		workers(t, 1000, 1000, func(i int) error {
			all, err := r.VolumesNamed(r.ctx, fmt.Sprint("pvc-", i))
			if err == nil && (len(all) == 1) != (i == 7) {
				t.Errorf("%d: %+v", i, all)
			}
			return err
		})
	})
}

// A volume that was never modified is not an error, for its caller and the others.
func TestModification_ofAVolumeThatWasNeverModified(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		ids := r.made(t, 20)
		if _, err := r.ModifyVolume(r.ctx, ModifyInput{VolumeID: ids[3], Size: 2}); err != nil {
			t.Fatal(err)
		}
		workers(t, 20, 20, func(i int) error {
			m, found, err := r.Modification(r.ctx, ids[i])
			if found != (i == 3) || found && m.TargetSize != 2 {
				t.Errorf("%d: %+v, %t", i, m, found)
			}
			return err
		})
	})
}

func TestByID_withoutNamesInTheMessageTheBatchIsHalved(t *testing.T) {
	asked := 0
	var mu sync.Mutex
	_, err := byID(func(context.Context, []string) (map[string]Volume, error) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		return nil, &Error{Code: "InvalidVolume.NotFound", Message: "some volume does not exist"}
	})(t.Context(), []string{"vol-1", "vol-2"})
	if !isNotFound(err) || asked != 1 || strings.Contains(err.Error(), "vol-") {
		t.Errorf("%v after %d calls: the batcher is to halve it", err, asked)
	}
}
