// Package change grows and modifies EBS volumes. EC2 has one call for both,
// ModifyVolume, and makes a volume wait for hours after it, while Kubernetes
// asks for a new size and for new parameters separately. So what arrives for
// one volume within a short window becomes one call, with the tags beside it.
//
// What is so already is answered at once and changes nothing. What is under way
// is joined, whoever asked for it. Nothing here has to survive a crash: EC2
// knows what it was asked for.
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
	written *written

	mu     sync.Mutex
	first  time.Time          // when the first call came
	groups map[string]*group  // by volume
	open   map[string]sending // see opened
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
	changer := &Changer{cloud: c, options: o, log: o.Logger, written: newWritten(o.Lag), groups: map[string]*group{}, open: map[string]sending{}}
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

// Apply makes a volume be as wished and returns it. What the volume is now may
// be given if that is known; nil has EC2 asked.
//
// A call whose context ends before anything was sent withdraws its part, and
// nothing comes of it. After that it only stops waiting.
//
// Errors: ErrNotFound; ErrInvalid and ErrOutOfRange (the volume cannot be so;
// nothing was changed); ErrBusy (another change of the volume is under way, and
// this one is not part of it); ErrNoSpace (EC2 allows the volume no change yet,
// or the account no more); ErrUnavailable.
func (c *Changer) Apply(ctx context.Context, now *cloud.Volume, id string, wish Wish) (cloud.Volume, error) {
	volume, err := c.look(ctx, now, id)
	if err != nil {
		return cloud.Volume{}, err
	}
	if c.settled(id) {
		if plan, err := planFor(volume, wish); err == nil && plan.done() {
			return volume, nil
		}
	}
	g, p, err := c.enter(ctx, volume, wish)
	if err != nil {
		return cloud.Volume{}, err
	}
	select {
	case <-p.answered:
		return p.volume, p.err
	case <-ctx.Done():
		c.withdraw(g, p)
		return cloud.Volume{}, fmt.Errorf("change volume %s to %s: %s: %w", id, wish, c.phase(g), context.Cause(ctx))
	}
}

func (c *Changer) look(ctx context.Context, now *cloud.Volume, id string) (cloud.Volume, error) {
	if now != nil {
		return c.written.over(*now), nil
	}
	v, err := c.cloud.Volume(ctx, id)
	return c.written.over(v), err
}

// settled reports whether what a volume shows is what it will be, as far as this
// process knows. In its first seconds it does not: another may have asked EC2 for
// something just before it.
func (c *Changer) settled(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first.IsZero() {
		c.first = time.Now()
	}
	_, open := c.open[id]
	return !open && time.Since(c.first) >= c.options.Lag
}

// enter adds a wish to the volume's group, or makes one.
func (c *Changer) enter(ctx context.Context, volume cloud.Volume, wish Wish) (*group, *part, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended.Err() != nil {
		return nil, nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, errClosed)
	}
	p := &part{wish: wish, answered: make(chan struct{})}
	g := c.groups[volume.ID]
	if g == nil {
		g = &group{changer: c, id: volume.ID, volume: volume, parts: []*part{p}}
		g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
		c.groups[volume.ID] = g
		c.running.Go(g.run)
		return g, p, nil
	}
	merged, err := merge(g.wish(), wish)
	if err == nil && g.sent && !merged.equal(g.wish()) {
		err = errors.New("it is under way already")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: another change of volume %s, to %s, is being made, and this one is to %s (%w); repeat the call when that one is done",
			backend.ErrBusy, volume.ID, g.wish(), wish, err)
	}
	g.parts = append(g.parts, p) // what is known of the volume was corrected since; this is no newer
	return g, p, nil
}

// withdraw takes a caller's part out of a group. A group that nobody is left in
// ends: what was not sent is not sent any more, and what was, EC2 knows.
func (c *Changer) withdraw(g *group, p *part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.left = true
	for _, other := range g.parts {
		if !other.left {
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

// openLasts is how long a modification that nobody saw end makes the next call
// ask EC2 for it.
const openLasts = time.Hour

// sending is a ModifyVolume of which nobody has seen the end.
type sending struct {
	at time.Time
	// after is when the modification before it began.
	after time.Time
}

// opened notes that a ModifyVolume is about to be sent; closed, that it was
// refused or has taken effect. In between, what a volume shows is not what it
// will be, and when its caller has left nobody may know whether EC2 has got it.
func (c *Changer) opened(id string, after time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if known := c.open[id].after; known.After(after) {
		after = known
	}
	c.open[id] = sending{now, after}
	for other, one := range c.open {
		if now.Sub(one.at) >= openLasts {
			delete(c.open, other)
		}
	}
}

// accepted notes when the modification began that was sent, so that no older one
// is taken for it.
func (c *Changer) accepted(id string, began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one, ok := c.open[id]; ok && !began.IsZero() {
		one.after = began.Add(-1)
		c.open[id] = one
	}
}

func (c *Changer) closed(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, id)
}

// sending is the volume's ModifyVolume of which nobody has seen the end.
func (c *Changer) sending(id string) (sending, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, ok := c.open[id]
	return one, ok
}
