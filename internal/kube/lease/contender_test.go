package lease

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
)

// change changes the Lease as no process under test does.
func (s *server) change(name string, change func(*coordinationv1.LeaseSpec)) {
	s.steal(name, s.holder(name))
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.leases[name].Spec)
}

func (s *server) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, name)
}

func (s *server) spec(name string) coordinationv1.LeaseSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.leases[name].Spec.DeepCopy()
}

func (s *server) labels(name string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.leases[name].Labels)
}

// A deleted Lease says nothing about its holder, which continues to work.
func TestRun_aDeletedLeaseIsNotFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := start(s, "a", nil)
		<-p.working
		other := start(s, "b", nil)
		time.Sleep(time.Minute)
		s.remove(own)
		time.Sleep(time.Minute)
		if closed(p.ended) || closed(other.working) || s.holder(own) != "a" {
			t.Errorf("the holder is %q; a has ended: %v, b works: %v", s.holder(own), closed(p.ended), closed(other.working))
		}
		// The holder is gone as well. A process that observed it waits for the duration.
		p.cancel()
		p.finish <- nil
		<-p.done
		<-other.working
		third := start(s, "c", nil)
		time.Sleep(time.Minute)
		s.fail(unreachable)
		<-other.ended
		synctest.Wait() // no renewal is in flight
		s.remove(own)
		s.fail(nil)
		gone := time.Now()
		other.finish <- nil
		<-third.working
		if waited := time.Since(gone); waited > DefaultDuration+5*DefaultRetryPeriod || waited < DefaultDuration {
			t.Errorf("c waited for %v", waited)
		}
		third.cancel()
		third.finish <- nil
		<-third.done
	})
}

// Between two reads another process may have held the lease.
func TestRun_aLeaseWithoutHolderIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := start(s, "a", nil)
		<-p.working
		time.Sleep(time.Minute)
		s.steal(own, "")
		<-p.ended
		p.finish <- nil
		if err := <-p.done; err == nil || !strings.Contains(err.Error(), "acquired and released it") {
			t.Errorf("Run returns %v", err)
		}
	})
}

func TestRun_waitsForTheDurationInTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		says *int32
		want time.Duration
	}{
		"a minute": {new(int32(60)), time.Minute}, "nothing": {nil, DefaultDuration}, "zero": {new(int32(0)), DefaultDuration},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				holder, long := "gone", metav1.NewMicroTime(time.Now().Add(-time.Hour))
				s.leases[own] = &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Name: own, ResourceVersion: "1"},
					Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: c.says, RenewTime: &long},
				}
				began := time.Now()
				p := start(s, "a", nil)
				<-p.working
				if waited := time.Since(began); waited < c.want || waited > c.want+5*time.Second {
					t.Errorf("the process waited %v, want %v", waited, c.want)
				}
				p.cancel()
				p.finish <- nil
				<-p.done
			})
		})
	}
}

// Other processes read these fields; client-go's election writes the same.
func TestRun_writesTheFieldsThatClientGoReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		labels := func(o *Options) { o.Labels = map[string]string{"app": "holdfast"} }
		p := start(s, "a", labels)
		<-p.working
		first := s.spec(own)
		if *first.LeaseDurationSeconds != 15 || *first.LeaseTransitions != 0 || !first.AcquireTime.Equal(first.RenewTime) {
			t.Errorf("at first: %v", first)
		}
		time.Sleep(time.Minute)
		renewed := s.spec(own)
		if !renewed.AcquireTime.Equal(first.AcquireTime) || time.Since(renewed.RenewTime.Time) > DefaultRetryPeriod || *renewed.LeaseTransitions != 0 {
			t.Errorf("renewed: %v", renewed)
		}
		if labels := s.labels(own); labels["app"] != "holdfast" {
			t.Errorf("labels %v", labels)
		}
		p.cancel()
		p.finish <- nil
		<-p.done
		if given := s.spec(own); *given.HolderIdentity != "" || *given.LeaseDurationSeconds != 1 || *given.LeaseTransitions != 0 {
			t.Errorf("released: %v", given)
		}
		s.change(own, func(spec *coordinationv1.LeaseSpec) { spec.LeaseTransitions = new(int32(7)) })
		p = start(s, "b", nil)
		<-p.working
		if taken := s.spec(own); *taken.LeaseTransitions != 8 || taken.AcquireTime.Equal(first.AcquireTime) {
			t.Errorf("acquired by another: %v", taken)
		}
		p.cancel()
		p.finish <- nil
		<-p.done
	})
}

// The answer comes so late that other processes may have acquired the lease.
func TestRun_doesNotBeginWithAnExpiredLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.fail(func() error { time.Sleep(14 * time.Second); return nil })
		p := start(s, "a", nil)
		time.Sleep(time.Minute)
		if closed(p.working) {
			t.Error("the work began")
		}
		s.fail(nil)
		<-p.working
		if closed(p.ended) {
			t.Error("the work has ended")
		}
		p.cancel()
		p.finish <- nil
		<-p.done
	})
}

// slow is a client one of whose requests hangs until its context ends.
type slow struct {
	api.Kubernetes
	api.Resource[*coordinationv1.Lease, *coordinationv1.LeaseList]
	hangs atomic.Bool
}

func (s *slow) CoordinationV1() api.CoordinationV1 { return s }

func (s *slow) Leases(string) api.Resource[*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return s
}

func (s *slow) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if s.hangs.CompareAndSwap(true, false) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Resource.Update(ctx, lease, options)
}

func TestRun_survivesOneHungRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newServer().env()
		client := &slow{Resource: env.Leases.CoordinationV1().Leases(env.Namespace)}
		env.Leases = client
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := Run(ctx, env, Options{Identity: "a"}, func(working context.Context) error {
			for pause(working, systemClock{}, time.Minute) {
				client.hangs.Store(true)
			}
			return context.Cause(working)
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the work ended with %v", err)
		}
	})
}

func TestRun_refusesInvalidDurations(t *testing.T) {
	for name, o := range map[string]Options{
		"a duration not above the deadline":                    {Duration: 10 * time.Second, RenewDeadline: 10 * time.Second},
		"a duration above the deadline by parts of a second":   {Duration: 10*time.Second + 900*time.Millisecond, RenewDeadline: 10*time.Second + 500*time.Millisecond},
		"a deadline that has no room for the pause of retries": {RenewDeadline: 6 * time.Second, RetryPeriod: 5 * time.Second},
	} {
		o.Identity = "a"
		if err := Run(t.Context(), newServer().env(), o, nil); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
