package local

import (
	"context"
	"errors"
	"time"
)

const (
	tidyEvery = time.Minute            // without work to retry
	tidySoon  = 100 * time.Millisecond // first retry; doubles up to tidyLate
	tidyLate  = 30 * time.Second
)

// housekeeping is the goroutine of a pool that retries what failed.
type housekeeping struct {
	asked chan struct{} // with room for one
	stop  context.CancelFunc
	done  chan struct{}
}

func newHousekeeping() housekeeping {
	return housekeeping{asked: make(chan struct{}, 1)}
}

func (p *Pool) startHousekeeping(ctx context.Context) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.housekeeping.stop, p.housekeeping.done = stop, make(chan struct{})
	if !p.phase.recovered.Load() {
		p.wake()
	}
	go p.housekeep(ctx)
}

func (p *Pool) stopHousekeeping() {
	if p.housekeeping.stop != nil {
		p.housekeeping.stop()
		<-p.housekeeping.done
	}
}

// wake has the housekeeping retry soon.
func (p *Pool) wake() {
	select {
	case p.housekeeping.asked <- struct{}{}:
	default:
	}
}

func (p *Pool) housekeep(ctx context.Context) {
	defer close(p.housekeeping.done)
	delay := tidyEvery
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.housekeeping.asked:
			delay = tidySoon
		case <-time.After(delay):
			if err := p.tidy(ctx); err == nil {
				delay = tidyEvery
			} else if delay = min(2*delay, tidyLate); ctx.Err() == nil {
				p.log.Warn("the pool could not be tidied; the driver retries", "after", delay.String(), "error", err)
			}
		}
	}
}

// tidy retries failed work: it opens the pool, recovers one that was read-only, thaws
// filesystems, resolves operations, and removes deleted and abandoned entries.
func (p *Pool) tidy(ctx context.Context) error {
	if err := p.ready(ctx); err != nil {
		return err
	}
	return errors.Join(p.resolveAll(ctx), p.emptyTrash(), p.dropAbandoned(p.stale))
}
