// Package change grows and modifies EBS volumes. EC2 has one call for both,
// ModifyVolume, and refuses the next for hours, while Kubernetes requests a new size
// and new parameters separately. So the requests for one volume that arrive within a
// short window become one call, together with the changes of tags.
//
// A state that is reached already is answered at once without a change. A
// modification under way is joined, also if another process requested it. No state
// has to survive a crash: EC2 has it. docs/reference/ebs.md lists the requirements
// with their tests.
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
)

// Cloud is what the Changer needs of EC2; *cloud.Client.
type Cloud interface {
	Volume(ctx context.Context, id string) (cloud.Volume, error)
	WaitVolume(ctx context.Context, id string, e cloud.Expect, ready func(v cloud.Volume, found bool) (bool, error)) (cloud.Volume, error)
	Modification(ctx context.Context, volumeID string) (cloud.Modification, bool, error)
	WaitModification(ctx context.Context, id string, e cloud.Expect, ready func(m cloud.Modification, found bool) (bool, error)) (cloud.Modification, error)
	ModifyVolume(ctx context.Context, in cloud.ModifyInput) (cloud.Modification, error)
	CreateTags(ctx context.Context, ids []string, tags map[string]string) error
	DeleteTags(ctx context.Context, ids []string, keys []string) error
}

// Options of a Changer; zero fields have the named defaults.
type Options struct {
	// Window is how long a change waits for others of its volume; 2 s.
	Window time.Duration
	// Lag is how long EC2 may take to show what it has accepted; 10 s.
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
	recent  *recentWrites

	mu          sync.Mutex
	first       time.Time             // when the first call came
	groups      map[string]*group     // by volume
	unconfirmed map[string]sentModify // see noteSent
}

// New makes a Changer. It asks EC2 nothing.
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
	changer := &Changer{cloud: c, options: o, log: o.Logger, recent: newRecentWrites(o.Lag), groups: map[string]*group{}, unconfirmed: map[string]sentModify{}}
	changer.ended, changer.end = context.WithCancel(context.Background())
	return changer
}

// errClosed is the answer of a Changer that was closed.
var errClosed = errors.New("the driver is shutting down")

// Close ends every call and waits for what runs in the background.
func (c *Changer) Close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.running.Wait()
}

// Apply brings a volume to a desired state and returns it. now is the volume if the
// caller has just described it, or nil.
//
// A call whose context ends before a request was sent withdraws its part, and
// nothing is changed for it. After that it only stops waiting.
//
// Errors: ErrNotFound; ErrInvalid and ErrOutOfRange (the state is impossible; nothing
// was changed); ErrBusy (another change of the volume is under way, and this one is
// not part of it); ErrNoSpace (EC2 allows the volume no change yet, or the account no
// more); ErrUnavailable.
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
		return c.recent.correct(*now), nil
	}
	v, err := c.cloud.Volume(ctx, id)
	return c.recent.correct(v), err
}

// stable reports whether a description of the volume cannot be followed by a change
// that was requested before. In its first seconds the process does not know: another
// may have sent a request just before it.
func (c *Changer) stable(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first.IsZero() {
		c.first = time.Now()
	}
	_, open := c.unconfirmed[id]
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
		err = errors.New("it is under way already")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: another change of volume %s, to %s, is being made, and this one is to %s (%w); repeat the call when that one is done",
			backend.ErrBusy, volume.ID, g.desired(), desired, err)
	}
	g.parts = append(g.parts, p) // the group's description was corrected since, and is not older
	return g, p, nil
}

// withdraw removes a caller's part from a group. A group without callers ends: a
// request that was not sent is not sent any more.
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

// unconfirmedFor is how long a modification whose end was not observed makes the next
// call describe it.
const unconfirmedFor = time.Hour

// sentModify is a ModifyVolume whose end was not observed.
type sentModify struct {
	at time.Time
	// after is when the modification before it began.
	after time.Time
}

// noteSent records that a ModifyVolume is about to be sent; confirm, that it was
// refused or has taken effect. In between, a description of the volume does not show
// its later state, and if the caller has left, it is unknown whether EC2 got the call.
func (c *Changer) noteSent(id string, after time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if known := c.unconfirmed[id].after; known.After(after) {
		after = known
	}
	c.unconfirmed[id] = sentModify{now, after}
	for other, one := range c.unconfirmed {
		if now.Sub(one.at) >= unconfirmedFor {
			delete(c.unconfirmed, other)
		}
	}
}

// noteAccepted records when the modification began, so that no older one is taken
// for it.
func (c *Changer) noteAccepted(id string, began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one, ok := c.unconfirmed[id]; ok && !began.IsZero() {
		one.after = began.Add(-1)
		c.unconfirmed[id] = one
	}
}

func (c *Changer) confirm(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unconfirmed, id)
}

// lastSent is the volume's ModifyVolume whose end was not observed.
func (c *Changer) lastSent(id string) (sentModify, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, ok := c.unconfirmed[id]
	return one, ok
}
