package cloud

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
)

// within checks a median and a number of calls against their budgets.
func within(t *testing.T, what string, took []time.Duration, most time.Duration, calls, budget int) {
	t.Helper()
	p50 := median(took)
	t.Logf("%s: p50 %s, %d describes", what, p50, calls)
	if p50 > most {
		t.Errorf("%s: p50 is %s, want at most %s", what, p50, most)
	}
	if calls > budget {
		t.Errorf("%s: %d describes, want at most %d", what, calls, budget)
	}
}

// The budgets of 500 volumes and 100 workers: calls in addition to the 500 necessary
// ones, and the difference of the median from the shortest possible time.
func TestBudgets_of500VolumesAnd100Workers(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		o := &transitions{rig: r, instance: r.instance(t)}
		for _, kind := range kindsOfTransitions { // one slow transition must not affect the others
			operate := o.prepare(t, kind)
			o.slowOnce(t, 30*time.Second)
			if err := operate(r.ctx); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		r.emu.Reset()
		const n, atOnce = 500, 100
		ids := make([]string, n)
		describes := func() int {
			return r.calls("") - r.calls("CreateVolume") - r.calls("AttachVolume") - r.calls("DetachVolume") - r.calls("ModifyVolume")
		}

		took := workers(t, n, atOnce, func(i int) error {
			v, err := r.create(r.ctx, fmt.Sprint("pvc-of-500-", i))
			ids[i] = v.ID
			return err
		})
		within(t, "create", took, 1650*time.Millisecond, describes(), 10)

		var instances [25]string
		for i := range instances {
			instances[i] = r.instance(t)
		}
		r.emu.Reset()
		took = workers(t, n, atOnce, func(i int) error {
			if _, err := r.Volume(r.ctx, ids[i]); err != nil {
				return err
			}
			return r.attach(r.ctx, ids[i], instances[i%25], device(i/25))
		})
		within(t, "attach", took, 2250*time.Millisecond, describes(), 15)

		r.emu.Reset()
		took = workers(t, n, atOnce, func(i int) error {
			if _, err := r.Volume(r.ctx, ids[i]); err != nil {
				return err
			}
			if _, err := r.ModifyVolume(r.ctx, ModifyInput{VolumeID: ids[i], Size: 2}); err != nil {
				return err
			}
			_, err := r.WaitModification(r.ctx, ids[i], Expect{Kind: "modify"}, func(m Modification, _ bool) (bool, error) {
				return m.State != Modifying, nil
			})
			return err
		})
		within(t, "modify", took, 2250*time.Millisecond, describes(), 15)

		r.emu.Reset()
		took = workers(t, n, atOnce, func(i int) error {
			if _, err := r.Volume(r.ctx, ids[i]); err != nil {
				return err
			}
			return r.detach(r.ctx, ids[i], instances[i%25])
		})
		within(t, "detach", took, 2250*time.Millisecond, describes(), 15)
	})
}

// A call without concurrent ones waits only for EC2, not for a batch to fill.
func TestLatency_ofLoneCalls(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		began := time.Now()
		v := r.volume(t, "pvc-1")
		if took, floor := time.Since(began), 1600*time.Millisecond; took > floor {
			t.Errorf("a creation took %s, EC2 needs %s", took, floor)
		}
		time.Sleep(time.Minute)
		began = time.Now()
		if _, err := r.Volume(r.ctx, v.ID); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 50*time.Millisecond {
			t.Errorf("a lookup took %s, EC2 needs 50ms", took)
		}
		i := r.instance(t)
		began = time.Now()
		if err := r.attach(r.ctx, v.ID, i, device(0)); err != nil {
			t.Fatal(err)
		}
		if took, floor := time.Since(began), 2100*time.Millisecond; took > floor {
			t.Errorf("an attachment took %s, EC2 needs %s", took, floor)
		}
	})
}

// A storm under EC2's default limits becomes a queue: no call fails, few are throttled, and
// it takes little longer than the limits require.
func TestThrottling_aStormIsAQueue(t *testing.T) {
	n := 5000
	if testing.Short() {
		n = 500
	}
	for _, atOnce := range []int{100, n} {
		t.Run(fmt.Sprint(atOnce, " at once"), func(t *testing.T) {
			emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
				ids := make([]string, n)
				workers(t, n, n, func(i int) error {
					v, err := r.create(r.ctx, fmt.Sprint("pvc-", i))
					ids[i] = v.ID
					return err
				})
				var instances [50]string
				for i := range instances {
					instances[i] = r.instance(t)
				}
				r.emu.Reset()
				knobs := r.emu.Knobs()
				knobs.Throttling.Preset = ec2emu.Default
				if err := r.emu.SetKnobs(knobs); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				workers(t, n, atOnce, func(i int) error { return r.attach(r.ctx, ids[i], instances[i%50], device(i/50)) })
				took := time.Since(began)
				calls, throttled := r.calls("AttachVolume"), int(r.emu.Statistics().Throttled(""))
				least := time.Duration(n-50) * time.Second / 5
				t.Logf("attach: %s (at least %s), %d calls, %d throttled, %d describes", took, least, calls, throttled, r.calls("DescribeVolumes"))
				if throttled*50 > calls {
					t.Errorf("%d of %d calls were throttled, want at most 2 %%", throttled, calls)
				}
				if took > least+least/20 {
					t.Errorf("it took %s; EC2's limits allow %s", took, least)
				}
			})
		})
	}
}
