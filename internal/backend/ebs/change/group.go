package change

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
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
	volume cloud.Volume // as it was when the latest part came
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
		over = !g.gather(time.Until(began.Add(g.changer.options.Window))) || g.changer.wasCutOff(g.id) && g.lookAgain()
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

// gather lets the window pass; false when nobody is left before that.
func (g *group) gather(window time.Duration) bool {
	timer := time.NewTimer(window)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-g.ctx.Done():
		return false
	}
}

// lookAgain brings what is known of the volume up to date, after a call of which
// nobody knows whether EC2 got it. It tells whether all is answered.
func (g *group) lookAgain() bool {
	volume, err := g.changer.cloud.Volume(g.ctx, g.id)
	if err != nil {
		g.answer(cloud.Volume{}, err)
		return true
	}
	g.changer.mu.Lock()
	g.volume = volume
	g.changer.mu.Unlock()
	return g.underWay()
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
// EC2 would. It tells whether all is answered.
func (g *group) underWay() bool {
	m, found, err := g.changer.cloud.Modification(g.ctx, g.id)
	if err != nil {
		if g.ctx.Err() == nil {
			g.changer.log.Warn("the volume's latest modification is not known; EC2 decides whether there can be another", "volume", g.id, "error", err)
		}
		return g.ctx.Err() != nil
	}
	g.earlier, g.earlierFound = m, found
	if !found || m.State == cloud.ModificationFailed {
		return false
	}
	volume, wish := g.soFar()
	plan, err := planFor(volume, wish)
	switch {
	case err == nil && plan.modifies() && brings(m, plan):
		return g.join(volume, m)
	case m.State == cloud.ModificationCompleted, err == nil && !plan.modifies():
		return false
	}
	g.answer(cloud.Volume{}, running(g.id, m, nil))
	return true
}

func (g *group) soFar() (cloud.Volume, Wish) {
	g.changer.mu.Lock()
	defer g.changer.mu.Unlock()
	return g.volume, g.wish()
}

// join waits for a modification that somebody asked for before, and makes the
// tags that are wished beside it.
func (g *group) join(volume cloud.Volume, m cloud.Modification) bool {
	_, wish := g.final()
	plan, err := planFor(volume, wish)
	if err != nil || !brings(m, plan) { // another wish came in between
		g.answer(cloud.Volume{}, running(g.id, m, nil))
		return true
	}
	if err := g.makeTags(plan); err != nil {
		g.answer(cloud.Volume{}, err)
		return true
	}
	g.answer(g.finish(volume, plan, m, m.Start))
	return true
}

// brings tells whether a modification ends where a plan wants to go.
func brings(m cloud.Modification, p plan) bool {
	in := p.input
	return (in.Size == 0 || m.TargetSize == in.Size) &&
		(in.Type == "" || m.TargetType == in.Type) &&
		(in.IOPS == 0 || m.TargetIOPS == in.IOPS) &&
		(in.Throughput == 0 || m.TargetThroughput == in.Throughput)
}

// isContext tells whether an error is only that a context ended.
func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
