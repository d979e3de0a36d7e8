package attachment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// inTime runs a test in virtual time with a Machine over an EC2 of one volume
// and two instances.
func inTime(t *testing.T, test func(t *testing.T, e *ec2, m *Machine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := newEC2().addVolume("vol-1").addInstance("i-a", "i-b")
		m := New(e, Options{})
		t.Cleanup(m.Close)
		test(t, e, m)
	})
}

// warm lets the first seconds of a Machine pass, in which it trusts EC2 less.
func warm(m *Machine) {
	m.begin()
	time.Sleep(10 * time.Second)
}

func mustAttach(t *testing.T, m *Machine, volume, instance string) string {
	t.Helper()
	device, err := m.Attach(t.Context(), volume, instance, Use{})
	if err != nil {
		t.Fatalf("Attach(%s, %s): %v", volume, instance, err)
	}
	return device
}

func mustDetach(t *testing.T, m *Machine, volume, instance string) {
	t.Helper()
	if err := m.Detach(t.Context(), volume, instance); err != nil {
		t.Fatalf("Detach(%s, %s): %v", volume, instance, err)
	}
}

func wantTruth(t *testing.T, e *ec2, volume, instance, want string) {
	t.Helper()
	if got := e.truth(volume, instance); got != want {
		t.Errorf("%s at %s is %s, want %s", volume, instance, got, want)
	}
}

func wantCalls(t *testing.T, e *ec2, action string, want int) {
	t.Helper()
	if got := e.count(action); got != want {
		t.Errorf("%d %s, want %d; %q", got, action, want, e.journal)
	}
}

// within is a context that ends after some time.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// started runs a call in a goroutine.
func started(call func() error) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- call() }()
	return answer
}

func TestAttach_thenDetach(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		warm(m)
		begin := time.Now()
		if device := mustAttach(t, m, "vol-1", "i-a"); device != "/dev/xvdaa" {
			t.Errorf("device %s", device)
		}
		wantTruth(t, e, "vol-1", "i-a", "attached")
		if took := time.Since(begin); took > 2500*time.Millisecond {
			t.Errorf("attaching took %s", took)
		}
		begin = time.Now()
		mustDetach(t, m, "vol-1", "i-a")
		wantTruth(t, e, "vol-1", "i-a", "absent")
		if took := time.Since(begin); took > 2500*time.Millisecond {
			t.Errorf("detaching took %s", took)
		}
		wantCalls(t, e, "AttachVolume", 1)
		wantCalls(t, e, "DetachVolume", 1)
	})
}

// A volume that is attached already costs one describe and no change.
func TestAttach_alreadyAttachedIsAnsweredAtOnce(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		device := mustAttach(t, m, "vol-1", "i-a")
		for name, other := range map[string]*Machine{"the same process": m, "after a restart": New(e, Options{})} {
			before, begin := e.mutations(), time.Now()
			if got := mustAttach(t, other, "vol-1", "i-a"); got != device {
				t.Errorf("%s: device %s, want %s", name, got, device)
			}
			if e.mutations() != before {
				t.Errorf("%s: %d calls changed something", name, e.mutations()-before)
			}
			if took := time.Since(begin); took > 80*time.Millisecond {
				t.Errorf("%s: took %s", name, took)
			}
			other.Close()
		}
	})
}

// A volume that is not attached takes one describe.
func TestDetach_notAttachedIsAnsweredAtOnce(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		warm(m)
		begin := time.Now()
		mustDetach(t, m, "vol-1", "i-a")
		mustDetach(t, m, "vol-unknown", "i-a")
		mustDetach(t, m, "vol-1", "i-unknown")
		mustDetach(t, m, "vol-1", "")
		if e.mutations() != 0 || time.Since(begin) > 320*time.Millisecond {
			t.Errorf("%d changes in %s", e.mutations(), time.Since(begin))
		}
	})
}

// Publish(v, A) → AttachVolume issued → attach is slow, RPC deadline
// passes → sidecar sleeps → EC2 finishes → Publish(v, A) again → immediate
// success, exactly one AttachVolume in total.
func TestAttach_deadlinePassesWhileEC2Attaches(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%t", restart), func(t *testing.T) {
			inTime(t, func(t *testing.T, e *ec2, m *Machine) {
				e.attaches = 20 * time.Second
				_, err := m.Attach(within(t, 15*time.Second), "vol-1", "i-a", Use{})
				if !errors.Is(err, backend.ErrBusy) && !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("the first call: %v", err)
				}
				if !strings.Contains(err.Error(), "has been attaching to instance i-a as /dev/xvdaa since") {
					t.Errorf("the error does not name the attachment that is detaching: %v", err)
				}
				time.Sleep(10 * time.Second)
				if restart {
					m.Close()
					m = New(e, Options{})
					defer m.Close()
				}
				begin := time.Now()
				mustAttach(t, m, "vol-1", "i-a")
				if took := time.Since(begin); took > 80*time.Millisecond {
					t.Errorf("the second call took %s", took)
				}
				wantCalls(t, e, "AttachVolume", 1)
				wantCalls(t, e, "DetachVolume", 0)
			})
		})
	}
}

// A repeat joins the attachment that EC2 has under way.
func TestAttach_repeatJoinsWhatIsUnderWay(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		e.attaches = 5 * time.Second
		for range 4 {
			if _, err := m.Attach(within(t, time.Second), "vol-1", "i-a", Use{}); err == nil {
				t.Fatal("attached too early")
			}
		}
		mustAttach(t, m, "vol-1", "i-a")
		wantCalls(t, e, "AttachVolume", 1)
	})
}

// Unpublish while Publish is under way cancels it; the driver ends
// up detached and only then answers OK.
func TestDetach_supersedesAttach(t *testing.T) {
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 80 * time.Millisecond, 110 * time.Millisecond, time.Second, 2 * time.Second, 2120 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T, e *ec2, m *Machine) {
				attached := started(func() error { _, err := m.Attach(t.Context(), "vol-1", "i-a", Use{}); return err })
				time.Sleep(after)
				synctest.Wait()
				detached := started(func() error { return m.Detach(t.Context(), "vol-1", "i-a") })
				if err := <-attached; !errors.Is(err, backend.ErrBusy) {
					t.Errorf("the superseded call: %v, want ErrBusy", err)
				}
				if err := <-detached; err != nil {
					t.Fatalf("Detach: %v", err)
				}
				wantTruth(t, e, "vol-1", "i-a", "absent")
				time.Sleep(time.Minute)
				wantTruth(t, e, "vol-1", "i-a", "absent")
				if e.count("AttachVolume") > 1 {
					t.Errorf("%q", e.journal)
				}
			})
		})
	}
}

// Publish while a detach from the node is in progress waits until it is
// over and attaches again; it cancels the pending Unpublish.
func TestAttach_supersedesDetach(t *testing.T) {
	for _, after := range []time.Duration{0, 60 * time.Millisecond, 110 * time.Millisecond, time.Second, 2 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T, e *ec2, m *Machine) {
				mustAttach(t, m, "vol-1", "i-a")
				time.Sleep(time.Minute)
				detached := started(func() error { return m.Detach(t.Context(), "vol-1", "i-a") })
				time.Sleep(after)
				synctest.Wait()
				mustAttach(t, m, "vol-1", "i-a")
				wantTruth(t, e, "vol-1", "i-a", "attached")
				if err := <-detached; !errors.Is(err, backend.ErrBusy) {
					t.Errorf("the superseded call: %v, want ErrBusy", err)
				}
				time.Sleep(time.Minute)
				wantTruth(t, e, "vol-1", "i-a", "attached")
				if e.count("AttachVolume") > 2 || e.count("DetachVolume") > 1 {
					t.Errorf("%q", e.journal)
				}
			})
		})
	}
}

// A detachment that another process asked for is waited for, too.
func TestAttach_waitsForADetachmentOfAnotherProcess(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		mustAttach(t, m, "vol-1", "i-a")
		if err := e.detach("vol-1", "i-a", false); err != nil {
			t.Fatal(err)
		}
		fresh := New(e, Options{})
		defer fresh.Close()
		mustAttach(t, fresh, "vol-1", "i-a")
		wantTruth(t, e, "vol-1", "i-a", "attached")
		wantCalls(t, e, "AttachVolume", 2)
		wantCalls(t, e, "DetachVolume", 0)
	})
}

// "Still detaching" is never success, and the repeat gets the outcome.
func TestDetach_detachingIsNotSuccess(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		mustAttach(t, m, "vol-1", "i-a")
		time.Sleep(time.Minute)
		e.detaches = 20 * time.Second
		err := m.Detach(within(t, 10*time.Second), "vol-1", "i-a")
		if err == nil || !strings.Contains(err.Error(), "has been detaching from instance i-a since") {
			t.Errorf("the first call: %v", err)
		}
		mustDetach(t, m, "vol-1", "i-a")
		wantTruth(t, e, "vol-1", "i-a", "absent")
		wantCalls(t, e, "DetachVolume", 1)
	})
}

// Calls with the same target share one operation.
func TestAttach_sameCallsShareTheWork(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		short := started(func() error { _, err := m.Attach(within(t, time.Second), "vol-1", "i-a", Use{}); return err })
		synctest.Wait()
		long := started(func() error { _, err := m.Attach(t.Context(), "vol-1", "i-a", Use{}); return err })
		if err := <-short; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the short call: %v", err)
		}
		if err := <-long; err != nil {
			t.Errorf("the long call: %v", err)
		}
		wantCalls(t, e, "AttachVolume", 1)
		if e.count("DescribeInstances") != 1 {
			t.Errorf("%d describes of the instance", e.count("DescribeInstances"))
		}
	})
}
