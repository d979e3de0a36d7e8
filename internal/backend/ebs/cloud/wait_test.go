package cloud

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// A wait ends with its own context, to the nanosecond.
func TestWait_endsWithItsOwnContext(t *testing.T) {
	options := bench()
	options.World.Knobs.Times.Create = world.Fixed(time.Hour)
	emulated(t, options, Options{}, func(t *testing.T, r *rig) {
		workers(t, 50, 50, func(i int) error {
			timeout := time.Duration(i+1) * 100 * time.Millisecond
			ctx, cancel := context.WithTimeout(r.ctx, timeout+50*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := r.create(ctx, fmt.Sprint("pvc-", i))
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != timeout+50*time.Millisecond {
				t.Errorf("after %s: %v", took, err)
			}
			return nil
		})
	})
}

// An error of ready ends a wait unchanged: an error state is final.
func TestWait_readysErrorIsFinal(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		v := r.volume(t, "pvc-1")
		bad := errors.New("bad state")
		_, err := r.WaitVolume(r.ctx, v.ID, Expect{}, func(Volume, bool) (bool, error) { return false, bad })
		if !errors.Is(err, bad) {
			t.Error(err)
		}
	})
}

// Errors that stay end a wait; faults of EC2 do not.
func TestWait_deniedIsFinalAndFaultsAreNot(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		v := r.volume(t, "pvc-1")
		available := func(v Volume, _ bool) (bool, error) { return v.State == VolumeAvailable, nil }
		r.fault(t, broken("DescribeVolumes", 5))
		if _, err := r.WaitVolume(r.ctx, v.ID, Expect{}, available); err != nil {
			t.Error(err)
		}
		knobs := r.emu.Knobs()
		knobs.Auth.Denied = []string{"DescribeVolumes"}
		if err := r.emu.SetKnobs(knobs); err != nil {
			t.Fatal(err)
		}
		if _, err := r.WaitVolume(r.ctx, v.ID, Expect{}, available); !errors.Is(err, backend.ErrDenied) {
			t.Error(err)
		}
	})
}

func TestClose_endsEveryWait(t *testing.T) {
	options := bench()
	options.World.Knobs.Times.Create = world.Fixed(time.Hour)
	emulated(t, options, Options{}, func(t *testing.T, r *rig) {
		done := make(chan error)
		go func() { _, err := r.create(r.ctx, "pvc-1"); done <- err }()
		time.Sleep(time.Minute)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, backend.ErrUnavailable) {
			t.Error(err)
		}
		if _, err := r.create(r.ctx, "pvc-2"); err == nil {
			t.Error("a closed client makes volumes")
		}
	})
}

// Every poll serves all waits; more waits than one describe takes need several.
func TestWait_aThousandSharePolls(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		workers(t, 1000, 1000, func(i int) error { _, err := r.create(r.ctx, fmt.Sprint("pvc-", i)); return err })
		if n := r.calls("DescribeVolumes"); n > 10 {
			t.Errorf("%d describes for a thousand volumes; 200 go into one", n)
		}
	})
}

// With times that vary no caller waits long after the end, and few describes are sent.
func TestWait_timesThatVary(t *testing.T) {
	options := bench()
	options.World.Knobs.Times.Attach = world.LogNormal(2*time.Second, 0.5)
	emulated(t, options, Options{}, func(t *testing.T, r *rig) {
		ids := r.made(t, 500)
		var instances [25]string
		for i := range instances {
			instances[i] = r.instance(t)
		}
		r.emu.Reset()
		began := time.Now()
		late := workers(t, 500, 100, func(i int) error { return r.attach(r.ctx, ids[i], instances[i%25], device(i/25)) })
		polls := float64(r.calls("DescribeVolumes")) / time.Since(began).Seconds()
		t.Logf("p50 %s, %.1f polls per second", median(late), polls)
		if median(late) > 2600*time.Millisecond {
			t.Errorf("the median attachment took %s, the median of EC2 is 2.1 s", median(late))
		}
		if polls > 10 {
			t.Errorf("%.1f polls per second; EC2 allows 20 in all", polls)
		}
	})
}
