package attachment

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// pendingOf are the seconds that the metrics report of detachments, by labels.
func pendingOf(t *testing.T, m *Machine) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m.Pending())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	reported := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := family.GetName()
			for _, label := range metric.GetLabel() {
				labels += " " + label.GetName() + "=" + label.GetValue()
			}
			reported[labels] = metric.GetCounter().GetValue()
		}
	}
	return reported
}

func TestPending_reportsADetachmentThatTakesLong(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		mustAttach(t, m, "vol-1", "i-a")
		time.Sleep(time.Minute)
		e.detaches = never
		detached := started(func() error { return m.Detach(t.Context(), "vol-1", "i-a") })
		time.Sleep(50 * time.Second)
		if reported := pendingOf(t, m); len(reported) != 0 {
			t.Errorf("after 50 s there is %v", reported)
		}
		time.Sleep(50 * time.Second)
		name := "aws_ebs_csi_ec2_detach_pending_seconds_total attachment_state=detaching instance_id=i-a volume_id=vol-1"
		reported := pendingOf(t, m)
		if seconds := reported[name]; len(reported) != 1 || seconds < 99 || seconds > 100 {
			t.Errorf("after 100 s there is %v", reported)
		}
		e.mu.Lock()
		e.volumes["vol-1"].facts[0].gone = time.Now()
		e.mu.Unlock()
		if err := <-detached; err != nil {
			t.Error(err)
		}
		if reported := pendingOf(t, m); len(reported) != 0 {
			t.Errorf("in the end there is %v", reported)
		}
	})
}

func TestPending_continuesOverRepeatsAndEndsWithoutCalls(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		mustAttach(t, m, "vol-1", "i-a")
		time.Sleep(time.Minute)
		e.detaches = never
		began := time.Now()
		for range 4 {
			if err := m.Detach(within(t, 15*time.Second), "vol-1", "i-a"); err == nil {
				t.Error("it was detached")
			}
			time.Sleep(5 * time.Minute)
		}
		for _, seconds := range pendingOf(t, m) {
			if want := time.Since(began).Seconds(); seconds < want-1 {
				t.Errorf("%v s of %v are reported", seconds, want)
			}
		}
		if reported := pendingOf(t, m); len(reported) != 1 {
			t.Errorf("there is %v", reported)
		}
		time.Sleep(unseen)
		if reported := pendingOf(t, m); len(reported) != 0 || len(m.pending.underWay.All()) != 0 {
			t.Errorf("without repeated calls there is %v", reported)
		}
	})
}

func TestPending_hasTheLastState(t *testing.T) {
	p, of := newPending(), pair{"vol-1", "i-a"}
	p.note(of, cloud.Detaching)
	p.note(of, cloud.Busy)
	if d, _ := p.underWay.Get(of); d.state != cloud.Busy {
		t.Errorf("it is %q", d.state)
	}
	p.done(of)
	if left := p.underWay.All(); len(left) != 0 {
		t.Errorf("a completed detachment is reported: %v", left)
	}
}
