package lease

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// server stores Leases as an API server does, with optimistic locking and injected
// faults. It needs no network, so that tests run on a fake clock.
type server struct {
	mu      sync.Mutex
	version int
	leases  map[string]*coordinationv1.Lease
	reads   []string     // the resourceVersions of the reads
	fault   func() error // called before each request; it may wait or return an error
}

func newServer() *server { return &server{leases: map[string]*coordinationv1.Lease{}} }

func (s *server) env() *cluster.Env {
	client := fake.NewClientset()
	client.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		answer, err := s.serve(action)
		return true, answer, err
	})
	return &cluster.Env{
		Driver: "ebs.csi.aws.com", Namespace: "holdfast-system", Clients: cluster.Clients{Leases: apiserver.Narrow(client)},
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}
}

func (s *server) serve(action clienttesting.Action) (*coordinationv1.Lease, error) {
	var name string
	var sent *coordinationv1.Lease
	switch action := action.(type) {
	case clienttesting.GetActionImpl:
		name = action.GetName()
		s.mu.Lock()
		s.reads = append(s.reads, action.GetOptions.ResourceVersion)
		s.mu.Unlock()
	case clienttesting.CreateAction: // an UpdateAction is one as well
		sent = action.GetObject().(*coordinationv1.Lease).DeepCopy()
		name = sent.Name
	}
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if err := fault(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	stored, exists := s.leases[name]
	switch {
	case action.GetVerb() == "create" && exists:
		return nil, apierrors.NewAlreadyExists(resource, name)
	case action.GetVerb() != "create" && !exists:
		return nil, apierrors.NewNotFound(resource, name)
	case action.GetVerb() == "get":
		return stored.DeepCopy(), nil
	case action.GetVerb() == "update" && sent.ResourceVersion != stored.ResourceVersion:
		return nil, apierrors.NewConflict(resource, name, errors.New("modified"))
	}
	s.version++
	sent.ResourceVersion = strconv.Itoa(s.version)
	s.leases[name] = sent
	return sent.DeepCopy(), nil
}

// fail sets the fault of all requests from now on; nil removes it.
func (s *server) fail(fault func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func unreachable() error { return errors.New("unreachable") }

// holder returns the current holder of a lease; "" without a holder, "-" without a lease.
func (s *server) holder(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[name] == nil {
		return "-"
	}
	return *s.leases[name].Spec.HolderIdentity
}

// steal sets another holder, as happens after a long sleep of the holder.
func (s *server) steal(name, holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.leases[name].Spec.HolderIdentity = &holder
	s.leases[name].ResourceVersion = strconv.Itoa(s.version)
}

const own = "holdfast-ebs-csi-aws-com"

// process is a process that runs with a lease.
type process struct {
	state   State
	cancel  context.CancelFunc
	working chan struct{} // closed when the work begins
	ended   chan struct{} // closed when the work's context ended
	done    chan error
	finish  chan error // what the work returns, once its context has ended or before
}

func start(s *server, identity string, change func(*Options)) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{cancel: cancel, working: make(chan struct{}), ended: make(chan struct{}), done: make(chan error, 1), finish: make(chan error, 1)}
	o := Options{Identity: identity, State: &p.state}
	if change != nil {
		change(&o)
	}
	go func() {
		p.done <- Run(ctx, s.env(), o, func(ctx context.Context) error {
			close(p.working)
			select {
			case <-ctx.Done():
				close(p.ended)
			case err := <-p.finish:
				return err
			}
			return <-p.finish
		})
	}()
	return p
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestRun_oneProcessWorksAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		first := start(s, "a", nil)
		synctest.Wait()
		second := start(s, "b", nil)
		time.Sleep(time.Hour)
		if !closed(first.working) || closed(first.ended) || closed(second.working) {
			t.Fatal("after an hour the first process does not work, or the second does")
		}
		if words := second.state.String(); !strings.Contains(words, "standby") || !strings.Contains(words, "held by a") {
			t.Errorf("the second is %q", words)
		}
		if words := first.state.String(); !strings.Contains(words, "leading for 1h0m") {
			t.Errorf("the first is %q", words)
		}
		// The process holds the lease until its work has ended, then releases it.
		first.cancel()
		time.Sleep(time.Minute)
		if !closed(first.ended) || closed(second.working) || s.holder(own) != "a" {
			t.Fatal("the lease was released before the work had ended")
		}
		first.finish <- nil
		if err := <-first.done; err != nil {
			t.Errorf("the first ends with %v", err)
		}
		time.Sleep(DefaultRetryPeriod * 3)
		if !closed(second.working) {
			t.Error("the second process waits although the lease was released")
		}
		second.cancel()
		second.finish <- nil
		<-second.done
		if holder := s.holder(own); holder != "" {
			t.Errorf("at the end the lease is held by %q", holder)
		}
	})
}

// TestRun_standbysReadTheCacheOfTheAPIServer: a thousand standbys must not each ask etcd
// every few seconds.
func TestRun_standbysReadTheCacheOfTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		first := start(s, "a", nil)
		synctest.Wait()
		second := start(s, "b", nil)
		time.Sleep(time.Hour)
		s.mu.Lock()
		reads := s.reads
		s.mu.Unlock()
		if exact := slices.Index(reads, newest); len(reads) < 100 || exact >= 0 {
			t.Errorf("read %d of %d asks etcd", exact, len(reads))
		}
		for _, p := range []*process{first, second} {
			p.cancel()
			p.finish <- nil
			<-p.done
		}
	})
}

// TestRun_continuesItsTenureUnlessAnotherProcessHeldTheLease: what a process knows of the
// cluster stays valid if no other process has acted.
func TestRun_continuesItsTenureUnlessAnotherProcessHeldTheLease(t *testing.T) {
	for _, another := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			var tenures []Tenure
			again := func(o *Options) { o.Again, o.Acquired = true, func(t Tenure) { tenures = append(tenures, t) } }
			p := start(s, "a", again)
			<-p.working
			s.fail(unreachable)
			<-p.ended
			s.fail(nil)
			p.finish <- nil
			if err := <-p.done; !errors.Is(err, ErrLost) {
				t.Errorf("Run returns %v", err)
			}
			if holder := s.holder(own); holder != "a" {
				t.Errorf("a lost lease is released: its holder is %q", holder)
			}
			if another {
				other := start(s, "b", nil)
				<-other.working
				other.cancel()
				other.finish <- nil
				<-other.done
			}
			p = start(s, "a", again)
			<-p.working
			if continued := tenures[0] == tenures[1]; continued == another {
				t.Errorf("another process held the lease: %t; tenures %v", another, tenures)
			}
			p.cancel()
			p.finish <- nil
			<-p.done
		})
	}
}

func TestRun_returnsTheWorksOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := start(s, "a", nil)
		<-p.working
		p.finish <- errors.New("no more work")
		if err := <-p.done; err == nil || errors.Is(err, ErrLost) || err.Error() != "no more work" {
			t.Errorf("Run returns %v", err)
		}
		if holder := s.holder(own); holder != "" {
			t.Errorf("the lease is held by %q", holder)
		}
		p = start(s, "a", nil)
		<-p.working
		p.finish <- nil
		if err := <-p.done; err != nil {
			t.Errorf("Run returns %v", err)
		}
	})
}

func TestRun_endsTheWorkBeforeOthersMayBegin(t *testing.T) {
	faults := map[string]func(){"refuses": func() {}, "hangs": func() { time.Sleep(time.Hour) }}
	for fault, do := range faults {
		t.Run("the API server "+fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				p := start(s, "a", nil)
				<-p.working
				synctest.Wait()
				renewed := time.Now()
				s.fail(func() error {
					do()
					return unreachable()
				})
				<-p.ended
				if after := time.Since(renewed); after < DefaultRenewDeadline || after > DefaultDuration-time.Second {
					t.Errorf("the work is ended %v after the last renewal, want between %v and well before %v", after, DefaultRenewDeadline, DefaultDuration)
				}
				if words := p.state.String(); !strings.Contains(words, "lost") || p.state.Leading() {
					t.Errorf("the state is %q, leading: %v", words, p.state.Leading())
				}
				p.finish <- context.Canceled
				if err := <-p.done; !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), own) {
					t.Errorf("Run returns %v, want the lost lease", err)
				}
			})
		})
	}
}

// client-go's election releases a lease that it could not renew, at the moment at
// which the API server may be reachable again, and before the work has ended.
func TestRun_keepsTheLeaseUntilTheWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := start(s, "a", func(o *Options) { o.RenewDeadline = 9 * time.Second })
		<-p.working
		synctest.Wait()
		s.fail(unreachable)
		// Renewals are retried for 9 s from the second one on; then client-go releases.
		time.Sleep(DefaultRetryPeriod + 9*time.Second - 500*time.Millisecond)
		s.fail(nil)
		<-p.ended
		synctest.Wait()
		if holder := s.holder(own); holder != "a" {
			t.Errorf("while the work still ends, the lease is held by %q", holder)
		}
		p.finish <- nil
		if err := <-p.done; !errors.Is(err, ErrLost) {
			t.Errorf("Run returns %v", err)
		}
	})
}

func TestRun_toleratesShortFailuresOfTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := start(s, "a", nil)
		<-p.working
		for range 20 {
			s.fail(unreachable)
			time.Sleep(7 * time.Second)
			s.fail(nil)
			time.Sleep(7 * time.Second)
		}
		if closed(p.ended) {
			t.Error("7 s without an answer end the work")
		}
		p.cancel()
		p.finish <- nil
		<-p.done
	})
}

func TestRun_endsTheWorkWhenAnotherHoldsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := start(s, "a", nil)
		<-p.working
		time.Sleep(time.Minute)
		s.steal(own, "b")
		stolen := time.Now()
		<-p.ended
		if after := time.Since(stolen); after > DefaultRetryPeriod {
			t.Errorf("the work is ended %v after another took the lease", after)
		}
		p.finish <- nil
		if err := <-p.done; !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "another process holds it: b") {
			t.Errorf("Run returns %v", err)
		}
		if holder := s.holder(own); holder != "b" {
			t.Errorf("after the loss the lease is held by %q", holder)
		}
	})
}

func TestRun_doesNotReleaseTheLeaseOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := start(s, "a", nil)
		<-p.working
		s.fail(unreachable)
		<-p.ended
		time.Sleep(time.Minute) // the work ends late, and "b" has waited long enough
		s.steal(own, "b")
		s.fail(nil)
		p.finish <- nil
		if err := <-p.done; !errors.Is(err, ErrLost) {
			t.Errorf("Run returns %v", err)
		}
		if holder := s.holder(own); holder != "b" {
			t.Errorf("the lease of b is now held by %q", holder)
		}
	})
}

func TestCheck_failsWhenTheWorkOutlivesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		p := start(s, "a", nil)
		<-p.working
		s.fail(unreachable)
		<-p.ended
		time.Sleep(DefaultDuration + grace - time.Second)
		if err := p.state.Check(); err != nil {
			t.Errorf("within the grace the check says %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := p.state.Check(); err == nil || !strings.Contains(err.Error(), own) {
			t.Errorf("after it the check says %v", err)
		}
		p.finish <- nil
		<-p.done
		if err := p.state.Check(); err != nil {
			t.Errorf("after the end the check says %v", err)
		}
	})
}

func TestRun_reacquiresItsOwnLeaseAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		crashed := start(s, "pod-a", nil)
		<-crashed.working
		s.fail(unreachable)
		<-crashed.ended
		crashed.finish <- nil
		<-crashed.done
		s.fail(nil)
		before := time.Now()
		again := start(s, "pod-a", nil)
		<-again.working
		if waited := time.Since(before); waited > 0 {
			t.Errorf("the same pod waited %v for its own lease", waited)
		}
		again.cancel()
		again.finish <- nil
		<-again.done
	})
}

func TestRun_holdsTheUpstreamLeasesDuringAMigration(t *testing.T) {
	upstream := []string{
		"ebs-csi-aws-com", "external-attacher-leader-ebs-csi-aws-com", "external-resizer-ebs-csi-aws-com",
		"external-snapshotter-leader-ebs-csi-aws-com", "external-health-monitor-leader-ebs-csi-aws-com",
	}
	if got := UpstreamNames("ebs.csi.aws.com"); !slices.Equal(got, upstream) {
		t.Fatalf("the upstream leases are %v", got)
	}
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		attacher := start(s, "upstream-attacher", func(o *Options) { o.Name = "external-attacher-leader-ebs-csi-aws-com" })
		<-attacher.working
		p := start(s, "a", func(o *Options) { o.HoldUpstream = true })
		other := start(s, "b", func(o *Options) { o.HoldUpstream = true })
		time.Sleep(time.Hour)
		if closed(p.working) || closed(other.working) {
			t.Fatal("a process works although an upstream sidecar holds its lease")
		}
		if words := p.state.String() + other.state.String(); !strings.Contains(words, "held by upstream-attacher") {
			t.Errorf("the states are %q", words)
		}
		attacher.cancel()
		attacher.finish <- nil
		<-attacher.done
		time.Sleep(time.Minute)
		leader, standby := p, other
		if closed(other.working) {
			leader, standby = other, p
		}
		if !closed(leader.working) || closed(standby.working) {
			t.Fatal("not exactly one process works")
		}
		// The loss of one lease ends the work and releases all the others.
		s.steal("external-resizer-ebs-csi-aws-com", "upstream-resizer")
		<-leader.ended
		leader.finish <- nil
		if err := <-leader.done; !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "external-resizer") {
			t.Errorf("Run returns %v", err)
		}
		standby.cancel()
		<-standby.done
		for _, name := range append(upstream, own) {
			if holder := s.holder(name); holder == "a" || holder == "b" {
				t.Errorf("lease %s is still held by %s", name, holder)
			}
		}
	})
}

func TestRun_endsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.fail(unreachable)
		p := start(s, "a", nil)
		time.Sleep(time.Minute)
		p.cancel()
		if err := <-p.done; err != nil || closed(p.working) {
			t.Errorf("Run returns %v", err)
		}
	})
}

func TestRun_refusesAnEmptyIdentity(t *testing.T) {
	if err := Run(context.Background(), newServer().env(), Options{}, nil); err == nil {
		t.Error("a process without an identity acquires leases")
	}
}

func TestName_isValidForAnyDriver(t *testing.T) {
	for driver, want := range map[string]string{"local.holdfast.dev": "holdfast-local-holdfast-dev", "Odd_Name.": "holdfast-odd-name-x"} {
		if got := Name(driver); got != want {
			t.Errorf("the lease of %s is %s, want %s", driver, got, want)
		}
	}
}
