package local

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

const (
	measureEvery = time.Minute // for changes that the free space does not show
	measureRest  = time.Second // at least, after a measurement
	measureShare = 20          // a measurement may take one part in so many of the time
)

// measurements is the goroutine of a pool that measures its volumes when it is asked. It
// has no clock: an idle process sleeps.
type measurements struct {
	asked chan struct{} // with room for one
	last  atomic.Pointer[time.Time]
	stop  context.CancelFunc
	done  chan struct{}
}

func newMeasurements() measurements { return measurements{asked: make(chan struct{}, 1)} }

func (p *Pool) startMeasurements(ctx context.Context) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.measurements.stop, p.measurements.done = stop, make(chan struct{})
	go p.keepMeasured(ctx)
}

func (p *Pool) stopMeasurements() {
	if p.measurements.stop != nil {
		p.measurements.stop()
		<-p.measurements.done
	}
}

// measureSoon has the volumes measured in the background.
func (p *Pool) measureSoon() {
	select {
	case p.measurements.asked <- struct{}{}:
	default:
	}
}

func (p *Pool) keepMeasured(ctx context.Context) {
	defer close(p.measurements.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.measurements.asked:
		}
		if !p.phase.recovered.Load() {
			continue
		}
		began := time.Now()
		if _, err := p.observe(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("the volumes could not be measured; the driver retries", "error", err)
		}
		_ = concurrency.Sleep(ctx, max(measureRest, measureShare*time.Since(began)))
	}
}

// isOld reports whether the last measurement may lack changes that the free space does
// not show.
func (m *measurements) isOld() bool {
	last := m.last.Load()
	return last == nil || time.Since(*last) > measureEvery
}

// drifted reports whether so much was written, discarded or filled by others since the
// last measurement that the capacity is worth another one.
func (p *Pool) drifted(now room) bool {
	const share, most = 256, 256 * mebibyte
	return p.ledger.drift(now.available-p.reserved) > min(now.total/share, most)
}

// observe measures the blocks of every volume and returns the room of the pool without
// the reserve. What volumes write meanwhile may be in the blocks or in the room, or in
// both: the smaller room of before and after counts.
func (p *Pool) observe(ctx context.Context) (available int64, err error) {
	if err := p.refreshForeign(); err != nil {
		return 0, err
	}
	before, err := roomOf(p.top)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	accounts := p.ledger.snapshotOfAccounts()
	for id, a := range accounts {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		accounts[id] = p.measured(id, a)
	}
	now, err := roomOf(p.top)
	if err != nil {
		return 0, err
	}
	p.ledger.observed(accounts, min(before.available, now.available)-p.reserved)
	p.measurements.last.Store(&began)
	return now.available - p.reserved, nil
}

// measured returns the account of a volume as its data file shows it. A volume whose file
// is missing or cannot be read may ask for all of its blocks.
func (p *Pool) measured(id string, a account) account {
	measured, err := p.measure(id, a)
	if err == nil {
		return measured
	}
	if !errors.Is(err, backend.ErrDataLoss) { // deleted meanwhile, or missing, which health reports
		p.log.Warn("the blocks of a volume cannot be counted", "volume", id, "error", err)
	}
	a.exclusive, a.mayShare = 0, p.reflink.Load()
	return a
}

func (p *Pool) measure(id string, a account) (account, error) {
	data, err := p.openData(volumePath(id), os.O_RDONLY)
	if err != nil {
		return a, err
	}
	defer func() { _ = data.Close() }()
	if !p.owns(id) {
		stat, err := statOf(data)
		if err != nil {
			return a, err
		}
		// The other half may have expanded it, and may have made snapshots of it.
		a.size, a.mayShare = max(a.size, stat.Size), p.reflink.Load()
	}
	return measureFile(data, a)
}

func measureFile(data *os.File, a account) (account, error) {
	var err error
	a.shared = 0
	if a.exclusive, err = allocated(data); err != nil || !a.mayShare {
		return a, err
	}
	shared, err := sharedExtents(data)
	if err != nil {
		return a, err
	}
	// Blocks become shared by a clone only, which notes that: see noteShared, and measure
	// for the clones of the other half.
	a.mayShare = len(shared) > 0
	total := a.exclusive
	for _, e := range shared {
		a.exclusive -= e.length
	}
	a.exclusive = max(0, a.exclusive)
	a.shared = total - a.exclusive
	return a, nil
}
