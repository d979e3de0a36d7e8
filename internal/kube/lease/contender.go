package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
)

// contender acquires, renews and releases one Lease for one process. It follows the
// rules of client-go's leader election, so that both can compete for a Lease:
//   - Every write carries the resourceVersion that was read, so that the API server
//     rejects one of two concurrent writes.
//   - A lease is free if it has no holder, if its holder is this process (before a
//     crash), or if it has expired: its spec has not changed for the duration in the
//     spec, measured on the local clock since the spec was first observed. The times
//     in the spec come from another clock and are ignored.
//   - The deletion of a Lease does not mean that its holder has ended: it may have
//     renewed just before. A process that observed a holder waits as long as after a
//     renewal. A process that never observed the Lease creates it at once, as
//     client-go does in both cases.
//
// A contender is not safe for concurrent use.
type contender struct {
	options Options
	name    string
	leases  api.Resource[*coordinationv1.Lease, *coordinationv1.LeaseList]
	log     *slog.Logger
	metrics *metrics // nil for none

	// lease is the Lease as last read or written; nil before that.
	lease *coordinationv1.Lease
	// seen is when its spec was first observed, or its absence.
	seen    time.Time
	missing bool
	// wrote is set once a request was sent that may have acquired the lease.
	wrote bool
	// working is set once the lease was acquired: from then on it is only renewed.
	working bool
	// exact is set if a write failed: what is known of the Lease may be old.
	exact bool
	// failures counts the attempts to acquire it since the API server last answered.
	failures int
}

// heldError reports that another process holds the lease, or held it meanwhile.
type heldError struct{ holder string }

func (e heldError) Error() string {
	if e.holder == "" {
		return "another process acquired and released it"
	}
	return "another process holds it: " + e.holder
}

// acquire retries until this process holds the lease. It returns false if ctx ends
// first. sent is a time before the request that acquired it.
func (c *contender) acquire(ctx context.Context) (sent time.Time, held bool) {
	for {
		sent, err := c.attempt(ctx)
		if err == nil {
			c.failures = 0
			return sent, true
		}
		if errors.As(err, &heldError{}) {
			c.failures = 0
		} else if c.failures++; ctx.Err() == nil {
			c.log.WarnContext(ctx, "cannot acquire the lease; retrying", "error", err)
		}
		period := c.period()
		longer := rand.Float64() * JitterFactor * float64(period) //nolint:gosec // nothing secret
		if !pause(ctx, c.options.clock, period+time.Duration(longer)) {
			return time.Time{}, false
		}
	}
}

// contendersAnnotation on a Lease has the number of processes that contend for it.
const contendersAnnotation = "holdfast.dev/contenders"

// pollEach is the least average time between two polls of all contenders.
const pollEach = 100 * time.Millisecond

// maximumDoublings limits the shift of the pause, which the duration of the lease bounds earlier.
const maximumDoublings = 10

// period returns the pause between two attempts to acquire the lease. Of many contenders
// each pauses longer, as long as the holder seems to renew the lease. The time of the
// renewal is that of another clock: it decides about the pause, and not about the lease.
//
// If attempts fail, the lease as last read does not show whether the holder renews it. Many
// contenders then back off up to the duration of the lease: together they could keep a slow
// API server from answering.
func (c *contender) period() time.Duration {
	if c.options.Eager {
		return c.options.RetryPeriod
	}
	if c.failures > 0 && c.options.Contenders != nil {
		return min(c.options.RetryPeriod<<min(c.failures, maximumDoublings), max(c.options.RetryPeriod, c.options.Duration))
	}
	if c.lease == nil || c.lease.Spec.RenewTime == nil || c.lease.Spec.LeaseDurationSeconds == nil {
		return c.options.RetryPeriod
	}
	contenders, err := strconv.Atoi(c.lease.Annotations[contendersAnnotation])
	duration := time.Duration(*c.lease.Spec.LeaseDurationSeconds) * time.Second
	if err != nil || c.options.clock.Now().Sub(c.lease.Spec.RenewTime.Time) > duration {
		return c.options.RetryPeriod
	}
	return max(c.options.RetryPeriod, time.Duration(contenders)*pollEach)
}

// renew renews the lease until the term or ctx ends.
func (c *contender) renew(ctx context.Context, t *term) {
	c.working = true
	for pause(ctx, c.options.clock, c.options.RetryPeriod) {
		sent, err := c.attempt(ctx)
		var other heldError
		switch {
		case err == nil && !t.renewed(sent):
			return
		case errors.As(err, &other):
			t.lost(other.Error())
			return
		case err != nil && ctx.Err() == nil:
			c.log.WarnContext(ctx, "cannot renew the lease; retrying until its term ends", "error", err)
		}
	}
}

// attempt acquires or renews the lease once. A heldError reports that another process
// holds it. sent is a time before the request: no process observed the write earlier.
func (c *contender) attempt(ctx context.Context) (sent time.Time, err error) {
	if c.mine() {
		// As a rule no other process has written the lease, and a read is not needed.
		if sent, err = c.write(ctx, c.lease, c.claim()); err == nil {
			return sent, nil
		}
	}
	exists, err := c.readToAcquire(ctx)
	switch {
	case err != nil:
		return time.Time{}, err
	case !c.free(), c.working && !c.mine(): // free now, but another process may have held it meanwhile
		return time.Time{}, heldError{c.holder()}
	case !exists:
		return c.write(ctx, nil, c.claim())
	}
	return c.write(ctx, c.lease, c.claim())
}

// release clears the holder if this process holds the lease, so that others need not
// wait until it expires. The caller's work has ended.
func (c *contender) release(ctx context.Context) error {
	if !c.wrote {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.RenewDeadline)
	defer cancel()
	for {
		// Not the cached state: a request that timed out may have taken effect.
		if exists, err := c.read(ctx, newest); err != nil || !exists || !c.mine() {
			return err
		}
		if _, err := c.write(ctx, c.lease, c.released()); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// resourceVersions of a read (Kubernetes API concepts, "Resource versions").
const (
	newest = ""  // the API server asks etcd
	cached = "0" // from the API server's cache, which may be behind
)

// readToAcquire is the read of a process that does not hold the lease, as a rule from the API
// server's cache: each of many standbys reads every few seconds. An old state delays this
// process only. The lease seems to expire later or not at all, or its holder's next renewal
// is unknown; then the write, which requires the version that was read, conflicts.
func (c *contender) readToAcquire(ctx context.Context) (exists bool, err error) {
	if !c.working && !c.exact {
		if exists, err = c.read(ctx, cached); err != nil || exists || c.lease == nil {
			return exists, err
		}
	}
	return c.read(ctx, newest)
}

// read gets the lease.
func (c *contender) read(ctx context.Context, version string) (exists bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.RenewDeadline/2)
	defer cancel()
	read, err := c.leases.Get(ctx, c.name, metav1.GetOptions{ResourceVersion: version})
	if apierrors.IsNotFound(err) && version == cached && c.lease != nil {
		return false, nil
	}
	if apierrors.IsNotFound(err) {
		if !c.missing {
			c.missing, c.seen = true, c.options.clock.Now()
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read it: %w", err)
	}
	if version == newest {
		c.exact = false
	}
	if version == newest || !older(read, c.lease) {
		c.see(read)
	}
	return true, nil
}

// write creates the lease if old is nil. Otherwise it updates the lease, unless it
// has changed since old.
func (c *contender) write(
	ctx context.Context, old *coordinationv1.Lease, spec coordinationv1.LeaseSpec,
) (sent time.Time, err error) {
	// Half of the deadline, so that one hung request leaves time for another.
	ctx, cancel := context.WithTimeout(ctx, c.options.RenewDeadline/2)
	defer cancel()
	send := func(next *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		return c.leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	next := old.DeepCopy()
	if old == nil {
		next = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.options.Namespace, Name: c.name}}
		send = func(next *coordinationv1.Lease) (*coordinationv1.Lease, error) {
			return c.leases.Create(ctx, next, metav1.CreateOptions{})
		}
	}
	next.Spec = spec
	for key, value := range c.options.Labels {
		metav1.SetMetaDataLabel(&next.ObjectMeta, key, value)
	}
	if c.options.Contenders != nil {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, contendersAnnotation, strconv.Itoa(c.options.Contenders()))
	}
	c.wrote = true
	sent = c.options.clock.Now()
	written, err := send(next)
	if err != nil {
		c.exact = true
		return time.Time{}, fmt.Errorf("write it: %w", err)
	}
	c.see(written)
	return sent, nil
}

func (c *contender) see(lease *coordinationv1.Lease) {
	same := c.lease != nil && !c.missing && c.lease.UID == lease.UID && equality.Semantic.DeepEqual(c.lease.Spec, lease.Spec)
	if !same {
		c.seen = c.options.clock.Now()
	}
	c.lease, c.missing = lease, false
	if c.metrics != nil {
		c.metrics.observe(c.name, lease, c.seen)
	}
	c.options.State.see(c.name, c.holder())
}

// older reports whether a state of the Lease is older than another one.
func older(a, b *coordinationv1.Lease) bool {
	if b == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// free reports whether the lease, as last observed, may be acquired.
func (c *contender) free() bool {
	if c.lease == nil || c.holder() == "" || c.mine() {
		return true
	}
	lasts := c.options.seconds()
	if s := c.lease.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		lasts = time.Duration(*s) * time.Second
	}
	return c.options.clock.Now().Sub(c.seen) >= lasts
}

// tenure is that of the lease as last written.
func (c *contender) tenure() Tenure {
	t := Tenure{UID: c.lease.UID}
	if known := c.lease.Spec.LeaseTransitions; known != nil {
		t.Transitions = *known
	}
	return t
}

func (c *contender) mine() bool { return c.lease != nil && c.holder() == c.options.Identity }

func (c *contender) holder() string {
	if c.lease == nil || c.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *c.lease.Spec.HolderIdentity
}

// claim returns the spec with this process as the holder.
func (c *contender) claim() coordinationv1.LeaseSpec {
	now := metav1.NewMicroTime(c.options.clock.Now())
	seconds, transitions := int32(c.options.seconds()/time.Second), int32(0)
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &c.options.Identity, LeaseDurationSeconds: &seconds,
		AcquireTime: &now, RenewTime: &now, LeaseTransitions: &transitions,
	}
	if c.lease == nil {
		return spec
	}
	if known := c.lease.Spec.LeaseTransitions; known != nil {
		transitions = *known
	}
	if !c.mine() {
		transitions++
	} else if c.lease.Spec.AcquireTime != nil {
		spec.AcquireTime = c.lease.Spec.AcquireTime
	}
	return spec
}

// released returns the spec without a holder, as client-go's election releases it.
func (c *contender) released() coordinationv1.LeaseSpec {
	now := metav1.NewMicroTime(c.options.clock.Now())
	none, second := "", int32(1)
	return coordinationv1.LeaseSpec{
		HolderIdentity: &none, LeaseDurationSeconds: &second,
		AcquireTime: &now, RenewTime: &now, LeaseTransitions: c.lease.Spec.LeaseTransitions,
	}
}
