package change

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// part is one caller's share in a group.
type part struct {
	wish     Wish
	left     bool          // guarded by Changer.mu: the caller has gone
	answered chan struct{} // closed when volume and err are set
	volume   cloud.Volume
	err      error
}

// group is what is changed of a volume at once. Fields below mu are guarded by
// Changer.mu.
type group struct {
	changer *Changer
	id      string
	ctx     context.Context // ends when nobody is left in the group
	cancel  context.CancelFunc

	earlier      cloud.Modification // the newest before this change
	earlierFound bool

	// mu:
	parts  []*part
	volume cloud.Volume // as it was when the group began, corrected by what became known since
	sent   bool         // the wish is final: nobody can add to it
	phase  string       // for error messages
}

// wish is that of all callers who are still there; Changer.mu is held. They were
// compared when they came, and so do not contradict each other.
func (g *group) wish() Wish {
	var all Wish
	for _, p := range g.parts {
		if !p.left {
			all, _ = merge(all, p.wish)
		}
	}
	return all
}

// close has the next change of the volume begin a group of its own; Changer.mu is held.
func (g *group) close() {
	if g.changer.groups[g.id] == g {
		delete(g.changer.groups, g.id)
	}
}

func (g *group) say(format string, arguments ...any) {
	g.changer.mu.Lock()
	defer g.changer.mu.Unlock()
	g.phase = fmt.Sprintf(format, arguments...)
}

// run gathers wishes for a while and then makes them true.
func (g *group) run() {
	stop := context.AfterFunc(g.changer.ended, g.cancel)
	defer stop()
	defer g.cancel()
	began := time.Now()
	g.say("it waits for other changes of the volume")
	over := g.underWay()
	if !over {
		over = concurrency.Sleep(g.ctx, time.Until(began.Add(g.changer.options.Window))) != nil
	}
	if over {
		g.answer(cloud.Volume{}, g.ctx.Err()) // whoever has no answer yet
		return
	}
	volume, wish := g.final()
	plan, err := planFor(volume, wish)
	if err != nil {
		if plan, err = g.without(volume, err); err != nil {
			g.answer(cloud.Volume{}, err)
			return
		}
	}
	g.answer(g.make(volume, plan))
}

// final closes the window.
func (g *group) final() (cloud.Volume, Wish) {
	g.changer.mu.Lock()
	defer g.changer.mu.Unlock()
	g.sent = true
	return g.volume, g.wish()
}

// without refuses the parts that are impossible by themselves, so that they do
// not take the others with them, and plans the rest; cause is what is wrong with
// all together.
func (g *group) without(volume cloud.Volume, cause error) (plan, error) {
	g.changer.mu.Lock()
	defer g.changer.mu.Unlock()
	for _, p := range g.parts {
		if _, err := planFor(volume, p.wish); err != nil && !p.left {
			p.settle(cloud.Volume{}, err)
			cause = err
		}
	}
	rest := g.wish()
	if rest.equal(Wish{}) {
		return plan{}, cause
	}
	return planFor(volume, rest)
}

// settle answers a part; Changer.mu is held.
func (p *part) settle(volume cloud.Volume, err error) {
	select {
	case <-p.answered:
		return
	default:
	}
	p.volume, p.err, p.left = volume, err, true
	close(p.answered)
}

// answer ends the group and answers everybody in it who has no answer yet.
func (g *group) answer(volume cloud.Volume, err error) {
	c := g.changer
	c.mu.Lock()
	defer c.mu.Unlock()
	g.close()
	if err != nil && c.ended.Err() != nil {
		err = fmt.Errorf("%w: %w", backend.ErrUnavailable, errClosed)
	}
	for _, p := range g.parts {
		p.settle(volume, err)
	}
}

// underWay looks at the volume's newest modification. One that is under way is
// joined where it brings what is wished, and else refuses the change at once, as
// EC2 would. It reports whether all is answered.
func (g *group) underWay() bool {
	m, found, err := g.newest()
	if err != nil {
		if g.ctx.Err() == nil {
			g.changer.log.Warn("the volume's latest modification is not known; EC2 decides whether there can be another", "volume", g.id, "error", err)
		}
		return g.ctx.Err() != nil
	}
	g.earlier, g.earlierFound = m, found
	if _, open := g.changer.sending(g.id); open { // what was known of the volume may be older
		volume, err := g.changer.look(g.ctx, nil, g.id)
		if err != nil {
			g.answer(cloud.Volume{}, err)
			return true
		}
		g.changer.mu.Lock()
		g.volume = volume
		g.changer.mu.Unlock()
	}
	if found && (m.State == cloud.Modifying || m.State == cloud.Optimizing || m.State == cloud.ModificationCompleted && time.Since(m.Start) < openLasts) {
		return g.beside(m)
	}
	g.changer.closed(g.id)
	return g.alreadySo()
}

// alreadySo answers at once when nothing has to be done.
func (g *group) alreadySo() bool {
	c := g.changer
	c.mu.Lock()
	volume := g.volume
	p, err := planFor(volume, g.wish())
	g.sent = err == nil && p.done()
	c.mu.Unlock()
	if g.sent {
		g.answer(volume, nil)
	}
	return g.sent
}

// newest is the volume's newest modification. A description that is older than
// what is known is looked past; after a ModifyVolume of which nobody saw the end,
// EC2 is given time to show what came of it.
func (g *group) newest() (m cloud.Modification, found bool, err error) {
	c := g.changer
	sent, open := c.sending(g.id)
	until, known := sent.at.Add(c.options.Lag/2), c.written.began(g.id)
	late := func() bool {
		return m.Start.Before(known) || open && !m.Start.After(sent.after) && time.Now().Before(until)
	}
	m, found, err = c.cloud.Modification(g.ctx, g.id)
	if err != nil || !late() {
		return m, found, err
	}
	g.say("EC2 does not show yet what came of the last ModifyVolume")
	_, err = c.cloud.WaitModification(g.ctx, g.id, cloud.Expect{}, func(shown cloud.Modification, is bool) (bool, error) {
		m, found = shown, is
		return !late(), nil
	})
	return m, found, err
}

// beside decides about what is wished while a modification is under way, or has
// ended so lately that the volume may not show it.
func (g *group) beside(m cloud.Modification) bool {
	c := g.changer
	c.mu.Lock()
	g.volume = withTargets(g.volume, m)
	volume, wish := g.volume, g.wish()
	plan, err := planFor(volume, wish)
	joins := err == nil && !plan.modifies() && (plan.done() || m.State == cloud.Modifying && wish.modifies())
	g.sent = joins
	c.mu.Unlock()
	switch {
	case joins:
		g.answer(g.join(volume, plan, m))
		return true
	case m.State == cloud.ModificationCompleted, err == nil && !plan.modifies():
		return false
	}
	g.answer(cloud.Volume{}, running(g.id, m, nil))
	return true
}

// withTargets is a volume as a modification makes it.
func withTargets(v cloud.Volume, m cloud.Modification) cloud.Volume {
	v.Size = max(v.Size, m.TargetSize)
	if m.TargetType != "" {
		v.Type = m.TargetType
	}
	if m.TargetIOPS != 0 {
		v.IOPS = m.TargetIOPS
	}
	if m.TargetThroughput != 0 {
		v.Throughput = m.TargetThroughput
	}
	return v
}

// join waits for a modification that was asked for before, and makes the tags
// that are wished beside it.
func (g *group) join(volume cloud.Volume, p plan, m cloud.Modification) (cloud.Volume, error) {
	if err := g.makeTags(p); err != nil {
		return cloud.Volume{}, err
	}
	p.input.Size = m.TargetSize
	return g.finish(volume, p, m, m.Start)
}

// brings reports whether a modification ends where a plan wants to go.
func brings(m cloud.Modification, p plan) bool {
	in := p.input
	return (in.Size == 0 || m.TargetSize == in.Size) &&
		(in.Type == "" || m.TargetType == in.Type) &&
		(in.IOPS == 0 || m.TargetIOPS == in.IOPS) &&
		(in.Throughput == 0 || m.TargetThroughput == in.Throughput)
}

// isContext reports whether an error is only that a context ended.
func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
