package attachment

import (
	"testing"
	"time"
)

// lateFor makes describes show, for some time, the state at an earlier instant.
func lateFor(e *ec2, at time.Time, d time.Duration) {
	end := time.Now().Add(d)
	e.lag = func() time.Duration {
		if now := time.Now(); now.Before(end) {
			return now.Sub(at)
		}
		return 0
	}
}

// EC2 shows no attachment, because its answer is stale: Detach must not
// rely on the answer while it may be stale.
func TestDetach_emptyDescriptionFromBeforeTheAttach(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		warm(m)
		before := time.Now()
		e.attaches = 300 * time.Millisecond
		mustAttach(t, m, "vol-1", "i-a")
		attached := time.Now()
		shown := attached
		e.lag = func() time.Duration { // attached until DetachVolume was called, then empty
			if e.calls["DetachVolume"] > 0 {
				shown = before
			}
			if time.Since(before) > 2*time.Second {
				return 0
			}
			return time.Since(shown)
		}
		mustDetach(t, m, "vol-1", "i-a")
		wantTruth(t, e, "vol-1", "i-a", "absent")
	})
}

// Another process has just attached the volume, a new process has no record of that, and
// EC2 does not show the attachment yet.
func TestDetach_emptyDescriptionAfterARestart(t *testing.T) {
	for _, everywhere := range []bool{false, true} {
		inTime(t, func(t *testing.T, e *ec2, m *Machine) {
			warm(m)
			before := time.Now()
			mustAttach(t, m, "vol-1", "i-a")
			m.Close()
			fresh := New(e, Options{})
			defer fresh.Close()
			lateFor(e, before, time.Second)
			instance := "i-a"
			if everywhere {
				instance = ""
			}
			mustDetach(t, fresh, "vol-1", instance)
			wantTruth(t, e, "vol-1", "i-a", "absent")
		})
	}
}

// A stale describe does not bring back an attachment that has ended, and causes no wait.
func TestAttach_descriptionFromBeforeTheDetach(t *testing.T) {
	for _, to := range []string{"i-a", "i-b"} {
		inTime(t, func(t *testing.T, e *ec2, m *Machine) {
			mustAttach(t, m, "vol-1", "i-a")
			time.Sleep(time.Minute)
			e.detaches = 15 * time.Second
			mustDetach(t, m, "vol-1", "i-a")
			e.attaches = 100 * time.Millisecond
			begin := time.Now()
			lateFor(e, begin.Add(-time.Second), 2*time.Second)
			attached := started(func() error { _, err := m.Attach(t.Context(), "vol-1", to, Use{}); return err })
			time.Sleep(200 * time.Millisecond)
			wantCalls(t, e, "AttachVolume", 2)
			if err := <-attached; err != nil {
				t.Error(err)
			}
			wantTruth(t, e, "vol-1", to, "attached")
		})
	}
}
