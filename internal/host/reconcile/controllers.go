package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Controller brings the objects of one kind to their desired state.
type Controller struct {
	Name string
	// All lists the keys to process when the host starts.
	All func(*store.Tx) ([]string, error)
	// Keys returns the keys that a change concerns. It must be quick.
	Keys func(store.Change) []string
	// Do brings a key closer to its desired state. It gets no change, but
	// reads the objects. again, if not 0, is when to call it again without a
	// change. It must not wait for the effect of another key's call: it returns,
	// and is called again after that change. It writes as the context's
	// store.Writer; a failing call that does not shortens its own back-off.
	Do func(ctx context.Context, key string) (again time.Duration, err error)
	// Partition, if given, separates keys: those of one partition that hang do not
	// delay those of another. It must be quick. A key whose partition changes while
	// it waits, as that of a claim that gets its class, stays where it was queued.
	Partition func(key string) string
	// Group, if given, names what several controllers process, such as claims. A key
	// runs in one of them at a time. If it is due in several, the one that comes
	// first in the Set goes first. A change by one of them does not shorten the
	// back-off of the others.
	Group string
}

// Set runs controllers over one store.
type Set struct {
	store  *store.Store
	queues map[string]*Queue
	groups map[string][]*Queue
	order  []*Queue
	// rest is called after each call of a controller, stopped when Run is over.
	rest, stopped func()

	mu sync.Mutex
	// moved is closed and replaced when a call ends or changes were handed out.
	moved chan struct{}
	// handed is the watch of the changes that the queues have not got yet.
	handed store.Watch
}

// NewSet makes a Set; nothing runs before Run.
func NewSet(opened *store.Store, controllers ...Controller) *Set {
	s := &Set{
		store: opened, queues: map[string]*Queue{}, groups: map[string][]*Queue{},
		rest: func() {}, stopped: func() {}, moved: make(chan struct{}),
	}
	for _, controller := range controllers {
		queue := newQueue(controller)
		queue.rested = func() {
			s.rest()
			s.Notify()
		}
		s.queues[controller.Name] = queue
		s.order = append(s.order, queue)
		group := cmp.Or(controller.Group, controller.Name)
		s.groups[group] = append(s.groups[group], queue)
	}
	for _, group := range s.groups {
		for _, queue := range group {
			queue.mu, queue.group = group[0].mu, group
		}
	}
	return s
}

// Queue is the queue of one controller, nil if there is none of that name.
func (s *Set) Queue(name string) *Queue { return s.queues[name] }

// Group returns the queues of a group's controllers. A controller without a group
// is alone in one of its own name.
func (s *Set) Group(name string) []*Queue { return s.groups[name] }

// Retry requeues every key that failed, because a driver came or went.
func (s *Set) Retry() {
	for _, queue := range s.order {
		queue.Retry()
	}
}

// Rest calls do once when no call has ended for the time quiet after the last
// one. It is set before Run.
func (s *Set) Rest(quiet time.Duration, do func()) {
	timer := time.AfterFunc(quiet, do)
	s.rest = func() { timer.Reset(quiet) }
	s.stopped = func() { timer.Stop() }
}

// Failpoints stop the process before a call of a controller. They are set before Run.
func (s *Set) Failpoints(points *failpoint.Set) {
	for _, queue := range s.order {
		queue.points = points
	}
}

// Await calls done until it reports true: at once, after each call of a
// controller and after each change that the queues got. It returns the context's
// error if that ends first.
func (s *Set) Await(ctx context.Context, done func() bool) error {
	for {
		s.mu.Lock()
		moved := s.moved
		s.mu.Unlock()
		if done() {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Notify makes Await call its functions again.
func (s *Set) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.moved)
	s.moved = make(chan struct{})
}

// Idle reports whether no call runs or is due. A key that waits for another
// object, or for its next attempt, does not count. It is false before Run has
// read which keys there are.
func (s *Set) Idle() bool {
	before, idle := s.work()
	if !idle {
		return false
	}
	s.mu.Lock()
	pending := s.handed
	s.mu.Unlock()
	if changes, err := pending.Poll(); len(changes) > 0 || err != nil {
		return false
	}
	after, idle := s.work()
	return idle && before == after
}

// work returns the number of times that keys became due, and whether all are idle.
func (s *Set) work() (count uint64, idle bool) {
	idle = true
	for _, queue := range s.order {
		added, busy := queue.work()
		count += added
		idle = idle && !busy
	}
	return count, idle
}

// Run works until the context ends, and returns when no call runs any more.
func (s *Set) Run(ctx context.Context) error {
	watch, err := s.begin()
	if err != nil {
		return err
	}
	defer func() { s.stopped() }()
	var stops sync.WaitGroup
	defer stops.Wait()
	s.hand(watch) // before a queue can be idle
	for _, queue := range s.order {
		queue.start(ctx)
	}
	s.Notify()
	defer func() {
		for _, queue := range s.order {
			stops.Go(queue.stop)
		}
	}()
	for {
		changes, err := watch.Next(ctx)
		switch {
		case errors.Is(err, store.ErrExpired):
			// More changed at once than the history holds: every key is processed.
			if watch, err = s.begin(); err != nil {
				return err
			}
		case err != nil:
			return nil // the context ended, as it was meant to
		}
		for _, change := range changes {
			s.dispatch(change)
		}
		s.hand(watch)
	}
}

// hand notes that the queues have every change before those of the watch.
func (s *Set) hand(watch *store.Watch) {
	s.mu.Lock()
	s.handed = *watch
	s.mu.Unlock()
	s.Notify()
}

// begin adds every key, and watches from where they were read.
func (s *Set) begin() (*store.Watch, error) {
	var watch *store.Watch
	err := s.store.View(func(tx *store.Tx) error {
		watch = s.store.Watch(tx.Version())
		for _, queue := range s.order {
			keys, err := queue.controller.All(tx)
			if err != nil {
				return fmt.Errorf("%s: %w", queue.controller.Name, err)
			}
			for _, key := range keys {
				queue.Add(key)
			}
		}
		return nil
	})
	return watch, err
}

func (s *Set) dispatch(change store.Change) {
	for _, queue := range s.order {
		for _, key := range queue.controller.Keys(change) {
			queue.changed(key, change.Writer)
		}
	}
}
