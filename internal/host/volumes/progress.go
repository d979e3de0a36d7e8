package volumes

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// askEvery is how long a step takes before the driver is asked for its progress, and the
// time between two questions.
const askEvery = time.Second

// work is what a step is about, in the words of the driver: the ID of the volume or
// snapshot, or the name of a new one.
func (s subject) work() string {
	if s.request != "" {
		return s.request
	}
	return s.handle
}

// followStep reports how far the driver is with a step, until the returned function is
// called. That returns the last report, and no other follows. Most steps end before the
// first question.
func (m *Manager) followStep(ctx context.Context, of subject, report func(*progress.State)) (stop func() *progress.State) {
	if of.driver == "" || of.work() == "" {
		return func() *progress.State { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	follower := &follower{manager: m, of: of, report: report}
	timer := time.AfterFunc(m.askEvery, func() { follower.run(ctx) })
	return func() *progress.State {
		cancel()
		timer.Stop()
		follower.mu.Lock()
		defer follower.mu.Unlock()
		follower.ended = true
		return follower.last
	}
}

// follower asks for the progress of one step.
type follower struct {
	manager *Manager
	of      subject
	meter   progress.Meter

	mu     sync.Mutex // locked while report runs
	report func(*progress.State)
	last   *progress.State
	ended  bool
}

func (f *follower) run(ctx context.Context) {
	ticker := time.NewTicker(f.manager.askEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		running, err := f.manager.operations(ctx, f.of.driver)
		switch {
		case client.Lacks(err):
			return
		case err == nil:
			f.show(running)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// show reports the newest operation of the step's object, and once that there is none
// any more.
func (f *follower) show(running []progress.Operation) {
	var state *progress.State
	for _, one := range running {
		if one.Object == f.of.work() {
			now := f.meter.Observe(time.Now(), one)
			state = &now
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || state == nil && f.last == nil {
		return
	}
	f.last = state
	f.report(state)
}

// operations asks a driver what it is doing. All steps of a driver share one call, so that
// a driver that hangs gets one.
func (m *Manager) operations(ctx context.Context, name string) ([]progress.Operation, error) {
	return m.listings.Do(ctx, name, func() ([]progress.Operation, error) {
		driver, err := m.options.Drivers.Driver(name)
		if err != nil {
			return nil, err
		}
		return driver.Client.Operations(context.WithoutCancel(ctx)) // which bounds the call
	})
}
