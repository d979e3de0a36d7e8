// Package change grows and modifies EBS volumes. EC2 has one call for both, ModifyVolume,
// and refuses the next one for hours, while Kubernetes requests a new size and new
// parameters separately. So the requests for a volume that arrive within a short window
// become one call, together with the changes of tags.
//
// If a volume is in the desired state already, the call returns at once. A call joins a
// modification under way that brings the desired state, also if another process
// requested it. No state has to survive a crash, because EC2 has it.
// docs/reference/ebs.md lists the requirements with their tests.
package change

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// Cloud has the calls of EC2 that the Changer needs; *cloud.Client implements it.
type Cloud interface {
	Volume(ctx context.Context, id string) (cloud.Volume, error)
	WaitVolume(ctx context.Context, id string, e cloud.Expect,
		ready func(v cloud.Volume, found bool) (bool, error)) (cloud.Volume, error)
	Modification(ctx context.Context, volumeID string) (cloud.Modification, bool, error)
	WaitModification(ctx context.Context, id string, e cloud.Expect,
		ready func(m cloud.Modification, found bool) (bool, error)) (cloud.Modification, error)
	ModifyVolume(ctx context.Context, in cloud.ModifyInput) (cloud.Modification, error)
	CreateTags(ctx context.Context, ids []string, tags map[string]string) error
	DeleteTags(ctx context.Context, ids []string, keys []string) error
}

// Options of a Changer; zero fields have the named defaults.
type Options struct {
	// Window is how long a change waits for others of its volume; 2 s.
	Window time.Duration
	// Lag is how long EC2 may take to show the effect of an accepted call; 10 s.
	Lag    time.Duration
	Logger *slog.Logger
}

// Changer changes volumes. It is safe for concurrent use.
type Changer struct {
	cloud   Cloud
	options Options
	log     *slog.Logger
	ended   context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup

	recent      concurrency.Expiring[string, recentWrite] // by volume
	unconfirmed concurrency.Expiring[string, sentModify]  // by volume; see noteSent

	mu     sync.Mutex
	first  time.Time         // when the first call came
	groups map[string]*group // by volume
}

// New makes a Changer. It makes no EC2 call.
func New(c Cloud, o Options) *Changer {
	if o.Window == 0 {
		o.Window = 2 * time.Second
	}
	if o.Lag == 0 {
		o.Lag = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	changer := &Changer{cloud: c, options: o, log: o.Logger, groups: map[string]*group{}}
	changer.ended, changer.end = context.WithCancel(context.Background())
	return changer
}

// errClosed is the error of a closed Changer.
var errClosed = errors.New("the driver is shutting down")

// Close ends every call and waits for the background work to end.
func (c *Changer) Close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.running.Wait()
}

// Apply brings a volume to a desired state and returns it. now is a description of the
// volume that the caller has just read, or nil.
//
// If the context ends before a request is sent, Apply withdraws its part of the change.
// After that, it only stops waiting.
//
// Errors: ErrNotFound; ErrInvalid and ErrOutOfRange (the state is impossible; the volume
// is unchanged); ErrBusy (another change of the volume is under way, and this one is not
// part of it); ErrNoSpace (EC2 does not allow the volume another change yet, or a quota
// of the account is reached); ErrUnavailable.
func (c *Changer) Apply(ctx context.Context, now *cloud.Volume, id string, desired Desired) (cloud.Volume, error) {
	volume, err := c.describe(ctx, now, id)
	if err != nil {
		return cloud.Volume{}, err
	}
	if c.stable(id) {
		if plan, err := planFor(volume, desired); err == nil && plan.done() {
			return volume, nil
		}
	}
	g, p, err := c.enter(ctx, volume, desired)
	if err != nil {
		return cloud.Volume{}, err
	}
	select {
	case <-p.answered:
		return p.volume, p.err
	case <-ctx.Done():
		c.withdraw(g, p)
		return cloud.Volume{}, fmt.Errorf("change volume %s to %s: %s: %w", id, desired, c.phase(g), context.Cause(ctx))
	}
}

func (c *Changer) describe(ctx context.Context, now *cloud.Volume, id string) (cloud.Volume, error) {
	if now != nil {
		return c.correct(*now), nil
	}
	v, err := c.cloud.Volume(ctx, id)
	return c.correct(v), err
}

// stable reports whether no earlier request can still change the volume after its
// description. In the first seconds of the process it is false, because another process
// may have sent a request just before.
func (c *Changer) stable(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first.IsZero() {
		c.first = time.Now()
	}
	_, open := c.unconfirmed.Get(id)
	return !open && time.Since(c.first) >= c.options.Lag
}

// enter adds a caller's desired state to the volume's group, or makes a group.
func (c *Changer) enter(ctx context.Context, volume cloud.Volume, desired Desired) (*group, *part, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended.Err() != nil {
		return nil, nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, errClosed)
	}
	p := &part{desired: desired, answered: make(chan struct{})}
	g := c.groups[volume.ID]
	if g == nil {
		g = &group{changer: c, id: volume.ID, volume: volume, parts: []*part{p}}
		g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
		c.groups[volume.ID] = g
		c.running.Go(g.run)
		return g, p, nil
	}
	merged, err := merge(g.desired(), desired)
	if err == nil && g.sent && !merged.equal(g.desired()) {
		err = errors.New("its request has been sent")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: another change of volume %s, to %s, is under way, and this one is to %s (%w); repeat the call when that change is done",
			backend.ErrBusy, volume.ID, g.desired(), desired, err)
	}
	g.parts = append(g.parts, p) // the group's description is not older than this caller's
	return g, p, nil
}

// withdraw removes a caller's part from a group. A group without callers ends, and does
// not send its request if it has not done so.
func (c *Changer) withdraw(g *group, p *part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.withdrawn = true
	for _, other := range g.parts {
		if !other.withdrawn {
			return
		}
	}
	g.cancel()
	g.close()
}

func (c *Changer) phase(g *group) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return g.phase
}

// unconfirmedFor is how long, after a ModifyVolume whose end was not observed, a call
// describes the volume's modification first.
const unconfirmedFor = time.Hour

// sentModify is a ModifyVolume whose end was not observed.
type sentModify struct {
	at time.Time
	// after is when the last modification before it began.
	after time.Time
}

// noteSent records that a ModifyVolume is about to be sent, and confirm that it was
// refused or has taken effect. In between, a description of the volume may not show the
// later state. If the caller has left, it is unknown whether EC2 received the call.
func (c *Changer) noteSent(id string, after time.Time) {
	c.unconfirmed.Update(id, unconfirmedFor, func(known sentModify, _ bool) sentModify {
		if known.after.After(after) {
			after = known.after
		}
		return sentModify{time.Now(), after}
	})
}

// noteAccepted records when the modification began, to distinguish it from older ones.
func (c *Changer) noteAccepted(id string, began time.Time) {
	c.unconfirmed.Adjust(id, func(sent sentModify) sentModify {
		if !began.IsZero() {
			sent.after = began.Add(-1)
		}
		return sent
	})
}

func (c *Changer) confirm(id string) { c.unconfirmed.Delete(id) }
