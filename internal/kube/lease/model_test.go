package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// The model: some machines, whose clocks differ in time and in speed, run one
// process after another, and all compete for one Lease. Requests are slow, fail,
// take effect without an answer, or take effect long after they timed out. Machines
// lose their connection for a while. Processes crash, end, and restart in the same
// pod or in its successor, also while a pod that was deleted by force still runs.
// At no time do two processes work.
func TestRun_atMostOneProcessWorksDespiteFaults(t *testing.T) {
	times := map[string]Options{
		"the usual times":    {},
		"the sidecars'":      {Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 5 * time.Second},
		"as tight as can be": {Duration: 7*time.Second + 900*time.Millisecond, RenewDeadline: 6*time.Second + 800*time.Millisecond, RetryPeriod: 5*time.Second + 600*time.Millisecond},
	}
	for name, options := range times {
		for machines := 2; machines <= 4; machines++ {
			t.Run(fmt.Sprintf("%s, %d machines", name, machines), func(t *testing.T) {
				for seed := range uint64(12) {
					synctest.Test(t, func(t *testing.T) { newWorld(t, seed, options).run(machines, time.Hour) })
				}
			})
		}
	}
}

// world is the API server with its one Lease, and the processes that work.
type world struct {
	t       *testing.T
	options Options

	mu      sync.Mutex
	random  *rand.Rand
	lease   *coordinationv1.Lease
	version int
	past    []state              // of the Lease, the newest last
	working map[string]time.Time // since when, by process
	terms   int
	tenures map[Tenure]string // the process of each
	holders []string          // in order
	calm    bool              // from now on without faults
	on      sync.WaitGroup    // requests in flight
}

func newWorld(t *testing.T, seed uint64, o Options) *world {
	return &world{t: t, options: o, random: rand.New(rand.NewPCG(seed, seed)), working: map[string]time.Time{}, tenures: map[Tenure]string{}}
}

// run lets the machines run with faults for a while, then without. Within two
// minutes exactly one process must work.
func (w *world) run(machines int, storm time.Duration) {
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range machines {
		running.Go(func() { w.machine(ctx, i) })
	}
	time.Sleep(storm)
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	time.Sleep(2 * time.Minute)
	w.mu.Lock()
	if len(w.working) != 1 || w.terms < 10 {
		w.t.Errorf("at the end %d processes work; the lease was acquired %d times", len(w.working), w.terms)
	}
	w.mu.Unlock()
	end()
	running.Wait()
	w.on.Wait()
}

// upTo draws a duration below d. chance returns true once in n calls on average.
func (w *world) upTo(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.random.Int64N(int64(d)))
}

func (w *world) chance(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm && w.random.IntN(n) == 0
}

// machine runs one process after the other: a container that restarts in its pod, or
// the pod's successor of the same name. At times the pod is deleted by force, and its
// process continues to run next to its successor.
func (w *world) machine(ctx context.Context, number int) {
	began := time.Now()
	rate := 0.95 + float64(w.upTo(100))/1000
	c := skewed{began: began, offset: w.upTo(48*time.Hour) - 24*time.Hour, rate: rate}
	pod, uid := fmt.Sprintf("driver-%d", number), 0
	var deleted sync.WaitGroup
	defer deleted.Wait()
	for ctx.Err() == nil {
		if w.chance(2) {
			uid++
		}
		identity := Identity(pod, fmt.Sprint("uid-", uid))
		if w.chance(4) {
			deleted.Go(func() { w.process(ctx, identity, c) })
			uid++
		} else {
			w.process(ctx, identity, c)
		}
		pause(ctx, systemClock{}, w.upTo(20*time.Second))
	}
}

// process runs one process until it ends or crashes.
func (w *world) process(ctx context.Context, identity string, c clock) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	crashed := make(chan struct{})
	o := w.options
	o.Identity, o.clock = identity, c
	env := &cluster.Env{
		Driver: "ebs.csi.aws.com", Namespace: "holdfast-system", Logger: slog.New(slog.DiscardHandler),
		Clients: cluster.Clients{Leases: &connection{world: w, crashed: crashed}},
	}
	fate := time.AfterFunc(w.upTo(20*time.Minute), func() {
		switch {
		case w.chance(2):
			close(crashed)
			w.stops(identity)
			end()
		case w.chance(1):
			end()
		}
	})
	defer fate.Stop()
	o.Again = w.chance(2)
	var tenure Tenure
	o.Acquired = func(t Tenure) { tenure = t }
	for again := true; again; {
		env.Registerer = prometheus.NewRegistry()
		err := Run(ctx, env, o, func(ctx context.Context) error {
			w.begins(identity, crashed)
			w.holds(identity, tenure)
			<-ctx.Done()
			w.stops(identity)
			time.Sleep(w.upTo(3 * time.Second)) // calls in flight end
			return ctx.Err()
		})
		again = o.Again && errors.Is(err, ErrLost)
	}
}

// holds fails if a tenure was that of another process.
func (w *world) holds(identity string, t Tenure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if other, known := w.tenures[t]; known && other != identity {
		w.t.Errorf("%s has the tenure %v of %s", identity, t, other)
	}
	if len(w.holders) > 0 && w.holders[len(w.holders)-1] != identity {
		if _, known := w.tenures[t]; known {
			w.t.Errorf("%s continues the tenure %v after %s", identity, t, w.holders[len(w.holders)-1])
		}
	}
	w.tenures[t] = identity
	w.holders = append(w.holders, identity)
}

func (w *world) begins(identity string, crashed <-chan struct{}) {
	if closed(crashed) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, since := range w.working {
		w.t.Errorf("%s begins to work while %s does, for %v", identity, other, time.Since(since))
	}
	w.working[identity] = time.Now()
	w.terms++
}

func (w *world) stops(identity string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.working, identity)
}

// skewed is a clock with an offset and another speed.
type skewed struct {
	began  time.Time
	offset time.Duration
	rate   float64
}

func (s skewed) Now() time.Time {
	return s.began.Add(s.offset + time.Duration(s.rate*float64(time.Since(s.began))))
}

func (s skewed) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(time.Duration(float64(d)/s.rate), f).Stop
}

// connection is one process's connection to the API server.
type connection struct {
	api.Kubernetes
	api.Resource[*coordinationv1.Lease, *coordinationv1.LeaseList]
	world   *world
	crashed <-chan struct{}

	mu        sync.Mutex
	downUntil time.Time // every request fails until then
}

func (c *connection) CoordinationV1() api.CoordinationV1 { return leases{c} }

type leases struct{ *connection }

func (l leases) Leases(string) api.Resource[*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return l.connection
}

func (c *connection) Get(ctx context.Context, _ string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	var behind time.Duration
	if o.ResourceVersion == "0" {
		behind = c.cacheLag()
	}
	return c.do(ctx, func() (*coordinationv1.Lease, error) {
		lease := c.world.asOf(time.Now().Add(-behind))
		if lease == nil {
			return nil, apierrors.NewNotFound(resource(), own)
		}
		return lease.DeepCopy(), nil
	})
}

// state is the Lease since a time.
type state struct {
	since time.Time
	lease *coordinationv1.Lease
}

// asOf returns the Lease at a time, nil before its creation. It is called with the lock held.
func (w *world) asOf(then time.Time) *coordinationv1.Lease {
	for _, s := range slices.Backward(w.past) {
		if !s.since.After(then) {
			return s.lease
		}
	}
	return nil
}

// cacheLag draws how far the cache of an API server is behind. Each of several API servers
// answers: a later read may be of an earlier state.
func (c *connection) cacheLag() time.Duration {
	if c.world.chance(20) {
		return c.world.upTo(time.Minute)
	}
	return c.world.upTo(time.Second)
}

func (c *connection) Create(ctx context.Context, sent *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.do(ctx, func() (*coordinationv1.Lease, error) {
		if c.world.lease != nil {
			return nil, apierrors.NewAlreadyExists(resource(), own)
		}
		return c.world.keep(sent), nil
	})
}

func (c *connection) Update(ctx context.Context, sent *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.do(ctx, func() (*coordinationv1.Lease, error) {
		switch w := c.world; {
		case w.lease == nil:
			return nil, apierrors.NewNotFound(resource(), own)
		case sent.ResourceVersion != w.lease.ResourceVersion:
			return nil, apierrors.NewConflict(resource(), own, errors.New("modified"))
		}
		return c.world.keep(sent), nil
	})
}

func resource() schema.GroupResource {
	return schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
}

// keep is called with the lock held.
func (w *world) keep(sent *coordinationv1.Lease) *coordinationv1.Lease {
	w.version++
	w.lease = sent.DeepCopy()
	w.lease.ResourceVersion = strconv.Itoa(w.version)
	w.past = append(w.past, state{time.Now(), w.lease})
	return w.lease.DeepCopy()
}

var errNetwork = errors.New("the network")

// do runs a request on the API server, with faults on the way there and back.
func (c *connection) do(ctx context.Context, it func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	w := c.world
	if closed(c.crashed) || c.down() || w.chance(20) {
		return nil, errNetwork
	}
	type answer struct {
		lease *coordinationv1.Lease
		err   error
	}
	answers := make(chan answer, 1)
	there, back, lost := c.latency(), c.latency(), w.chance(20)
	w.on.Go(func() { // the request continues after its caller has timed out
		time.Sleep(there)
		w.mu.Lock()
		lease, err := it()
		w.mu.Unlock()
		time.Sleep(back)
		if lost {
			lease, err = nil, errNetwork
		}
		answers <- answer{lease, err}
	})
	select {
	case a := <-answers:
		if closed(c.crashed) {
			return nil, errNetwork
		}
		return a.lease, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// latency draws how long a request or its answer takes: as a rule below 50 ms.
func (c *connection) latency() time.Duration {
	switch w := c.world; {
	case w.chance(100):
		return w.upTo(time.Minute)
	case w.chance(5):
		return w.upTo(6 * time.Second)
	}
	return c.world.upTo(50 * time.Millisecond)
}

// down reports whether the connection is down. Now and then it takes the connection
// down for up to a minute.
func (c *connection) down() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.world.chance(100) {
		c.downUntil = time.Now().Add(c.world.upTo(time.Minute))
	}
	return time.Now().Before(c.downUntil)
}
