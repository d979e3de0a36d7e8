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
	// Settle is how long EC2 may take to show what it has accepted; 10 s.
	Settle time.Duration
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

	mu     sync.Mutex
	groups map[string]*group // by volume
	// cut is when a ModifyVolume of a volume was cut off on its way.
	cut map[string]time.Time
}

// New makes a Changer. It asks EC2 nothing.
func New(c Cloud, o Options) *Changer {
	if o.Window == 0 {
		o.Window = 2 * time.Second
	}
	if o.Settle == 0 {
		o.Settle = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	changer := &Changer{cloud: c, options: o, log: o.Logger, groups: map[string]*group{}, cut: map[string]time.Time{}}
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
	if plan, err := planFor(volume, wish); err == nil && plan.done() {
		return volume, nil
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
		return *now, nil
	}
	return c.cloud.Volume(ctx, id)
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
	g.parts = append(g.parts, p)
	if !g.sent {
		g.volume = volume
	}
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

// cutOff notes a ModifyVolume that nobody waited for any more. If it may have
// reached EC2, the next change of the volume looks twice before it sends another.
func (c *Changer) cutOff(id string, maybe bool) {
	if !maybe {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.cut[id] = now
	for other, at := range c.cut {
		if now.Sub(at) >= c.options.Settle {
			delete(c.cut, other)
		}
	}
}

func (c *Changer) wasCutOff(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, was := c.cut[id]
	return was && time.Since(at) < c.options.Settle
}
