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

// part is the request of one caller in a group.
type part struct {
	desired   Desired
	withdrawn bool          // guarded by Changer.mu: the caller left
	answered  chan struct{} // closed when volume and err are set
	volume    cloud.Volume
	err       error
}

// group has the requests for a volume that are carried out together. Changer.mu guards
// the fields below mu.
type group struct {
	changer *Changer
	id      string
	ctx     context.Context // ends when the last caller has left
	cancel  context.CancelFunc

	earlier      cloud.Modification // the last one before this change
	earlierFound bool

	// mu:
	parts  []*part
	volume cloud.Volume // as it was when the group began, corrected since
	sent   bool         // the desired state is final
	phase  string       // the current step, for error messages
}

// desired merges the desired states of all callers that have not left; Changer.mu is
// held. They do not contradict each other, because enter has compared them.
func (g *group) desired() Desired {
	var all Desired
	for _, p := range g.parts {
		if !p.withdrawn {
			all, _ = merge(all, p.desired)
		}
	}
	return all
}

// close makes the next change of the volume begin a new group; Changer.mu is held.
func (g *group) close() {
	if g.changer.groups[g.id] == g {
		delete(g.changer.groups, g.id)
	}
}

func (g *group) setPhase(format string, arguments ...any) {
	g.changer.mu.Lock()
	defer g.changer.mu.Unlock()
	g.phase = fmt.Sprintf(format, arguments...)
}

// run collects requests during the window and then carries them out.
func (g *group) run() {
	stop := context.AfterFunc(g.changer.ended, g.cancel)
	defer stop()
	defer g.cancel()
	began := time.Now()
	g.setPhase("it waits for other changes of the volume")
	ended := g.underWay()
	if !ended {
		ended = concurrency.Sleep(g.ctx, time.Until(began.Add(g.changer.options.Window))) != nil
	}
	if ended {
		g.answer(cloud.Volume{}, g.ctx.Err()) // the callers without an answer
		return
	}
	volume, desired := g.closeWindow()
	plan, err := planFor(volume, desired)
	if err != nil {
		if plan, err = g.rejectImpossible(volume, err); err != nil {
			g.answer(cloud.Volume{}, err)
			return
		}
	}
	g.answer(g.execute(volume, plan))
}

// closeWindow ends the collecting of requests.
func (g *group) closeWindow() (cloud.Volume, Desired) {
	g.changer.mu.Lock()
	defer g.changer.mu.Unlock()
	g.sent = true
	return g.volume, g.desired()
}

// rejectImpossible rejects each part that is impossible by itself, so that the others do
// not fail with it, and plans the rest. cause is the error of all parts together.
func (g *group) rejectImpossible(volume cloud.Volume, cause error) (plan, error) {
	g.changer.mu.Lock()
	defer g.changer.mu.Unlock()
	for _, p := range g.parts {
		if _, err := planFor(volume, p.desired); err != nil && !p.withdrawn {
			p.complete(cloud.Volume{}, err)
			cause = err
		}
	}
	rest := g.desired()
	if rest.equal(Desired{}) {
		return plan{}, cause
	}
	return planFor(volume, rest)
}

// complete answers a part; Changer.mu is held.
func (p *part) complete(volume cloud.Volume, err error) {
	select {
	case <-p.answered:
		return
	default:
	}
	p.volume, p.err, p.withdrawn = volume, err, true
	close(p.answered)
}

// answer ends the group and answers every caller that has no answer yet.
func (g *group) answer(volume cloud.Volume, err error) {
	c := g.changer
	c.mu.Lock()
	defer c.mu.Unlock()
	g.close()
	if err != nil && c.ended.Err() != nil {
		err = fmt.Errorf("%w: %w", backend.ErrUnavailable, errClosed)
	}
	for _, p := range g.parts {
		p.complete(volume, err)
	}
}

// underWay inspects the volume's newest modification. If one is under way, the group
// joins it, or is rejected at once if its target is not the desired state, as EC2 would
// do. underWay reports whether all callers are answered.
func (g *group) underWay() bool {
	m, found, err := g.newest()
	if err != nil {
		if g.ctx.Err() == nil {
			g.changer.log.Warn("cannot describe the volume's latest modification; EC2 decides whether another is possible",
				"volume", g.id, "error", err)
		}
		return g.ctx.Err() != nil
	}
	g.earlier, g.earlierFound = m, found
	if _, open := g.changer.unconfirmed.Get(g.id); open { // the description of the volume may be older
		volume, err := g.changer.describe(g.ctx, nil, g.id)
		if err != nil {
			g.answer(cloud.Volume{}, err)
			return true
		}
		g.changer.mu.Lock()
		g.volume = volume
		g.changer.mu.Unlock()
	}
	if found && (m.State == cloud.Modifying || m.State == cloud.Optimizing ||
		m.State == cloud.ModificationCompleted && time.Since(m.Start) < unconfirmedFor) {
		return g.whileModifying(m)
	}
	g.changer.confirm(g.id)
	return g.alreadyDone()
}

// alreadyDone answers at once if the volume is in the desired state.
func (g *group) alreadyDone() bool {
	c := g.changer
	c.mu.Lock()
	volume := g.volume
	p, err := planFor(volume, g.desired())
	g.sent = err == nil && p.done()
	c.mu.Unlock()
	if g.sent {
		g.answer(volume, nil)
	}
	return g.sent
}

// newest is the volume's newest modification. It ignores descriptions that are older
// than the last modification of this process. After a ModifyVolume whose end was not
// observed, it waits until EC2 must show the outcome.
func (g *group) newest() (m cloud.Modification, found bool, err error) {
	c := g.changer
	sent, open := c.unconfirmed.Get(g.id)
	until, known := sent.at.Add(c.options.Lag/2), c.began(g.id)
	late := func() bool {
		return m.Start.Before(known) || open && !m.Start.After(sent.after) && time.Now().Before(until)
	}
	m, found, err = c.cloud.Modification(g.ctx, g.id)
	if err != nil || !late() {
		return m, found, err
	}
	g.setPhase("EC2 does not show the outcome of the last ModifyVolume yet")
	_, err = c.cloud.WaitModification(g.ctx, g.id, cloud.Expect{},
		func(shown cloud.Modification, ok bool) (bool, error) {
			m, found = shown, ok
			return !late(), nil
		})
	return m, found, err
}

// whileModifying handles the group while a modification is under way, or has ended so
// recently that the volume may not show it.
func (g *group) whileModifying(m cloud.Modification) bool {
	c := g.changer
	c.mu.Lock()
	g.volume = withTargets(g.volume, m)
	volume, desired := g.volume, g.desired()
	plan, err := planFor(volume, desired)
	joins := err == nil && !plan.modifies() && (plan.done() || m.State == cloud.Modifying && desired.modifies())
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

// withTargets is a volume after a modification.
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

// join changes the tags, and waits for a modification that is under way.
func (g *group) join(volume cloud.Volume, p plan, m cloud.Modification) (cloud.Volume, error) {
	if err := g.makeTags(p); err != nil {
		return cloud.Volume{}, err
	}
	p.input.Size = m.TargetSize
	return g.finish(volume, p, m, m.Start)
}

// brings reports whether the target of a modification is that of a plan.
func brings(m cloud.Modification, p plan) bool {
	in := p.input
	return (in.Size == 0 || m.TargetSize == in.Size) &&
		(in.Type == "" || m.TargetType == in.Type) &&
		(in.IOPS == 0 || m.TargetIOPS == in.IOPS) &&
		(in.Throughput == 0 || m.TargetThroughput == in.Throughput)
}

// isContext reports whether an error is the error of an ended context.
func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
