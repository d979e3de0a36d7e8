package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// measured reads a metric of the only lease of a process.
func measured(t *testing.T, env *cluster.Env, name string) float64 {
	t.Helper()
	families, err := env.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name && len(family.GetMetric()) == 1 {
			metric := family.GetMetric()[0]
			return metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no %s, or more than one", name)
	return 0
}

func TestMetrics_ageOfTheRenewalAndTransitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		run := func(identity string) (env *cluster.Env, stop func()) {
			env = s.env()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = Run(ctx, env, Options{Identity: identity}, func(ctx context.Context) error { <-ctx.Done(); return nil })
			}()
			return env, func() { cancel(); <-done }
		}
		holder, stop := run("a")
		time.Sleep(time.Minute)
		standby, stopStandby := run("b")
		defer stopStandby()
		time.Sleep(time.Minute)
		for who, env := range map[string]*cluster.Env{"holder": holder, "standby": standby} {
			if age := measured(t, env, "holdfast_lease_renew_age_seconds"); age < 0 || age > 5 {
				t.Errorf("the %s observed a renewal %v s ago", who, age)
			}
			if n := measured(t, env, "holdfast_lease_transitions_total"); n != 0 {
				t.Errorf("the %s counts %v transitions, want 0", who, n)
			}
		}
		s.fail(func() error { return context.DeadlineExceeded })
		time.Sleep(8 * time.Second)
		if age := measured(t, holder, "holdfast_lease_renew_age_seconds"); age < 8 || age > 11 {
			t.Errorf("after 8 s without an answer, the last renewal was %v s ago", age)
		}
		s.fail(nil)
		time.Sleep(5 * time.Second)
		stop()
		time.Sleep(time.Minute)
		if n := measured(t, standby, "holdfast_lease_transitions_total"); n != 1 || measured(t, standby, "leader_election_master_status") != 1 {
			t.Errorf("the next holder counts %v transitions, want 1", n)
		}
	})
}
