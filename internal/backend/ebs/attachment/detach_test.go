package attachment

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

func TestDetach_everywhere(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		e.volumes["vol-1"].MultiAttach = true
		for _, instance := range []string{"i-a", "i-b"} {
			if _, err := m.Attach(t.Context(), "vol-1", instance, Use{Shared: true}); err != nil {
				t.Fatal(err)
			}
		}
		fresh := New(e, Options{})
		defer fresh.Close()
		mustDetach(t, fresh, "vol-1", "")
		wantTruth(t, e, "vol-1", "i-a", "absent")
		wantTruth(t, e, "vol-1", "i-b", "absent")
	})
}

func TestDetach_everywhereSupersedesAttach(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		attached := started(func() error { _, err := m.Attach(t.Context(), "vol-1", "i-a", Use{}); return err })
		time.Sleep(time.Second)
		mustDetach(t, m, "vol-1", "")
		if err := <-attached; !errors.Is(err, backend.ErrBusy) {
			t.Errorf("got %v", err)
		}
		wantTruth(t, e, "vol-1", "i-a", "absent")
	})
}

// A missing instance does not prove that the volume is detached: the volume itself is polled.
func TestDetach_fromAMissingInstance(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		mustAttach(t, m, "vol-1", "i-a")
		time.Sleep(time.Minute)
		e.mu.Lock()
		delete(e.instances, "i-a")
		e.volumes["vol-1"].facts[0].leaving = time.Now()
		e.volumes["vol-1"].facts[0].gone = time.Now().Add(20 * time.Second)
		e.mu.Unlock()
		mustDetach(t, m, "vol-1", "i-a")
		wantTruth(t, e, "vol-1", "i-a", "absent")
		wantCalls(t, e, "DetachVolume", 0)
	})
}

// A detachment that hangs at a running instance is reported and never forced.
func TestDetach_neverForcesARunningInstance(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		mustAttach(t, m, "vol-1", "i-a")
		time.Sleep(time.Minute)
		e.detaches = never
		err := m.Detach(within(t, 20*time.Minute), "vol-1", "i-a")
		if !errors.Is(err, backend.ErrBusy) || !strings.Contains(err.Error(), "still mounted or open") {
			t.Errorf("got %v", err)
		}
		wantCalls(t, e, "DetachVolume", 1)
	})
}

func TestDetach_forcesAStoppedInstance(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		device := mustAttach(t, m, "vol-1", "i-a")
		time.Sleep(time.Minute)
		e.detaches = never
		e.instances["i-a"].State = cloud.InstanceStopped
		begin := time.Now()
		mustDetach(t, m, "vol-1", "i-a")
		if took := time.Since(begin); took < 90*time.Second || took > 100*time.Second {
			t.Errorf("took %s", took)
		}
		if _, refused := m.names.refused.Get(deviceName{"i-a", device}); !refused {
			t.Errorf("%s may be given again at once", device)
		}
	})
}

// The stuck detachment's age is known over repeats of the call.
func TestDetach_saysSinceWhen(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		mustAttach(t, m, "vol-1", "i-a")
		time.Sleep(time.Minute)
		e.detaches = never
		since := stamp(time.Now().Add(75 * time.Millisecond))
		for range 5 {
			err := m.Detach(within(t, 15*time.Second), "vol-1", "i-a")
			if err == nil || !strings.Contains(err.Error(), "since "+since) {
				t.Errorf("got %v, want since %s", err, since)
			}
			time.Sleep(5 * time.Minute)
		}
		wantCalls(t, e, "DetachVolume", 1)
	})
}

// Two callers that want one volume each for themselves, at once: EC2 refuses
// neither where the volume can be attached to several, so this must.
func TestAttach_exclusiveOfAMultiAttachVolume(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		e.volumes["vol-1"].MultiAttach = true
		other := started(func() error { _, err := m.Attach(t.Context(), "vol-1", "i-b", Use{}); return err })
		_, err := m.Attach(t.Context(), "vol-1", "i-a", Use{})
		failed := 0
		for _, err := range []error{err, <-other} {
			if err != nil {
				failed++
				if !errors.Is(err, backend.ErrInUse) {
					t.Errorf("got %v, want ErrInUse", err)
				}
			}
		}
		if failed != 1 || e.count("AttachVolume") != 1 {
			t.Errorf("%d failed; %q", failed, e.journal)
		}
	})
}

// The same with two processes: neither may end with the volume at both.
func TestAttach_exclusiveOverTwoProcesses(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		e.volumes["vol-1"].MultiAttach = true
		second := New(e, Options{})
		defer second.Close()
		other := started(func() error { _, err := second.Attach(t.Context(), "vol-1", "i-b", Use{}); return err })
		_, errA := m.Attach(t.Context(), "vol-1", "i-a", Use{})
		errB := <-other
		if errA == nil && errB == nil {
			t.Error("both got it")
		}
	})
}

func TestAttach_sharedOfAVolumeThatIsNotMultiAttach(t *testing.T) {
	inTime(t, func(t *testing.T, _ *ec2, m *Machine) {
		mustAttach(t, m, "vol-1", "i-a")
		if _, err := m.Attach(t.Context(), "vol-1", "i-b", Use{Shared: true}); !errors.Is(err, backend.ErrInUse) {
			t.Errorf("got %v, want ErrInUse", err)
		}
	})
}

func TestAttach_waitsUntilAnotherInstanceHasGivenTheVolumeBack(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		mustAttach(t, m, "vol-1", "i-a")
		time.Sleep(time.Minute)
		detached := started(func() error { return m.Detach(t.Context(), "vol-1", "i-a") })
		time.Sleep(time.Second)
		mustAttach(t, m, "vol-1", "i-b")
		if err := <-detached; err != nil {
			t.Error(err)
		}
		wantTruth(t, e, "vol-1", "i-a", "absent")
		wantTruth(t, e, "vol-1", "i-b", "attached")
	})
}

func TestClose_endsCalls(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		e.attaches = never
		answered := started(func() error { _, err := m.Attach(t.Context(), "vol-1", "i-a", Use{}); return err })
		time.Sleep(time.Second)
		m.Close()
		if err := <-answered; !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		if _, err := m.Attach(t.Context(), "vol-1", "i-a", Use{}); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}
