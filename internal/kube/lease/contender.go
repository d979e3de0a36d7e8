package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
)

// contender is one process's part in the contest for one Lease. The rules are
// those of client-go's leader election, so that it contends with processes that
// use that one:
//   - Every write is guarded by the resourceVersion that was read, so that of two
//     processes which take a lease one is refused.
//   - A lease is free when it has no holder, when its holder is this process (it
//     was, before a crash), or when its spec has not changed for as long as it
//     says itself, on the own clock, from when the own eyes first saw it. The
//     times in the spec are another clock's, and are not looked at.
//   - A Lease that somebody deletes is no sign that its holder has ended, which may
//     have renewed it a moment before: who saw it held waits as if it had changed
//     when it was found missing. (client-go's makes it at once, and so must who
//     never saw it.)
//
// It is used by one goroutine at a time.
type contender struct {
	options Options
	name    string
	leases  api.Resource[*coordinationv1.Lease, *coordinationv1.LeaseList]
	log     *slog.Logger

	// lease is as last read, or written; nil before that.
	lease *coordinationv1.Lease
	// seen is when its spec was first seen, or the lease was first found missing.
	seen    time.Time
	missing bool
	// wrote tells that a request was sent which may have made the lease ours.
	wrote bool
	// working tells that the lease was taken, and is to be renewed only.
	working bool
}

// heldError says that another process has the lease, or has had it.
type heldError struct{ holder string }

func (e heldError) Error() string {
	if e.holder == "" {
		return "another process has given it to nobody"
	}
	return "another process has it: " + e.holder
}

// acquire tries until the lease is held, or ctx ends: then it is false. sent is
// from before the request that took it.
func (c *contender) acquire(ctx context.Context) (sent time.Time, held bool) {
	for {
		sent, err := c.attempt(ctx)
		if err == nil {
			return sent, true
		}
		if !errors.As(err, &heldError{}) && ctx.Err() == nil {
			c.log.WarnContext(ctx, "cannot take the lease; it is tried again", "error", err)
		}
		longer := rand.Float64() * JitterFactor * float64(c.options.RetryPeriod) //nolint:gosec // nothing secret
		if !pause(ctx, c.options.clock, c.options.RetryPeriod+time.Duration(longer)) {
			return time.Time{}, false
		}
	}
}

// keep renews the lease until the term or ctx has ended.
func (c *contender) keep(ctx context.Context, t *term) {
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
			c.log.WarnContext(ctx, "cannot renew the lease; it is tried again until its time is over", "error", err)
		}
	}
}

// attempt takes the lease or renews it; a heldError says that another process
// has it. sent is from before the request that did it: nobody saw it done earlier.
func (c *contender) attempt(ctx context.Context) (sent time.Time, err error) {
	if c.mine() {
		// As a rule nobody else has written, and there is nothing to read.
		if sent, err = c.write(ctx, c.lease, c.claim()); err == nil {
			return sent, nil
		}
	}
	exists, err := c.read(ctx)
	switch {
	case err != nil:
		return time.Time{}, err
	case !c.free(), c.working && !c.mine(): // nobody's now, it was somebody's meanwhile
		return time.Time{}, heldError{c.holder()}
	case !exists:
		return c.write(ctx, nil, c.claim())
	}
	return c.write(ctx, c.lease, c.claim())
}

// release gives the lease back, if it is ours: others need not wait until it has
// run out. The work has ended.
func (c *contender) release(ctx context.Context) error {
	if !c.wrote {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.RenewDeadline)
	defer cancel()
	for {
		// Not what is known: a request that was given up may have been done.
		if exists, err := c.read(ctx); err != nil || !exists || !c.mine() {
			return err
		}
		if _, err := c.write(ctx, c.lease, c.nobody()); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// read asks for the lease. The answer is the newest state, since no
// resourceVersion is asked for (API concepts, "Resource versions").
func (c *contender) read(ctx context.Context) (exists bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.RenewDeadline/2)
	defer cancel()
	read, err := c.leases.Get(ctx, c.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if !c.missing {
			c.missing, c.seen = true, c.options.clock.Now()
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read it: %w", err)
	}
	c.see(read)
	return true, nil
}

// write makes the lease (old is nil) or changes it, if it still is the old one.
func (c *contender) write(ctx context.Context, old *coordinationv1.Lease, spec coordinationv1.LeaseSpec) (sent time.Time, err error) {
	// One request that hangs does not take all of the time there is.
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
	c.wrote = true
	sent = c.options.clock.Now()
	written, err := send(next)
	if err != nil {
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
	c.options.State.see(c.name, c.holder())
}

// free tells whether the lease, as last seen, may be taken.
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

func (c *contender) mine() bool { return c.lease != nil && c.holder() == c.options.Identity }

func (c *contender) holder() string {
	if c.lease == nil || c.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *c.lease.Spec.HolderIdentity
}

// claim is the lease with this process as its holder.
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

// nobody is the lease without a holder, as client-go gives it back.
func (c *contender) nobody() coordinationv1.LeaseSpec {
	now := metav1.NewMicroTime(c.options.clock.Now())
	none, second := "", int32(1)
	return coordinationv1.LeaseSpec{
		HolderIdentity: &none, LeaseDurationSeconds: &second,
		AcquireTime: &now, RenewTime: &now, LeaseTransitions: c.lease.Spec.LeaseTransitions,
	}
}
