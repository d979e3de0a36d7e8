package intent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

const (
	writeTimeout = 15 * time.Second // of one group commit, conflicts included
	lastTimeout  = 3 * time.Second  // for the last commit, when the process ends
	conflicts    = 5                // tries of one commit
	failurePause = time.Second      // after a commit that failed
	parallel     = 8                // objects that are written at the same time
)

// Run writes pending changes until ctx ends, and then a last time unless ctx's cause is
// ErrAbandoned. It returns nil.
func (s *Store[T]) Run(ctx context.Context) error {
	defer close(s.ended)
	for {
		if !s.await(ctx) {
			if errors.Is(context.Cause(ctx), ErrAbandoned) {
				return nil
			}
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
			defer cancel()
			_ = s.commit(last, true) // each change's waiter has the error
			return nil
		}
		started := time.Now()
		pause := s.options.Spacing
		if err := s.commit(ctx, false); err != nil {
			s.options.Logger.Warn("intents not written", "driver", s.options.Driver, "error", err)
			pause = failurePause
		}
		work.Sleep(ctx, pause-time.Since(started))
	}
}

// await returns when it is time to write; false when ctx ended.
func (s *Store[T]) await(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.urgent:
	case <-s.due:
		lazy := time.NewTimer(s.options.FlushAfter)
		defer lazy.Stop()
		select {
		case <-ctx.Done():
			return false
		case <-lazy.C:
			return true
		case <-s.urgent:
		}
	}
	return work.Sleep(ctx, s.options.Window)
}

// commit writes everything that is pending, and removes what no longer counts: all of it
// if it is the last commit, else what has waited long enough.
func (s *Store[T]) commit(ctx context.Context, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	readers := s.take()
	err := s.apply(ctx, last)
	for _, done := range readers {
		done <- err
	}
	s.giveBack(err)
	return err
}

// take makes the pending changes those of this commit. It returns the callers that wait
// until all objects were read again.
func (s *Store[T]) take() (readers []chan error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if readers, s.readers = s.readers, nil; len(readers) > 0 {
		s.behind = true
	}
	for key, c := range s.pending {
		_, dead := s.dead[key]
		s.takeOver(key, c.remove)
		if c.remove || c.fresh && !dead {
			s.dead[key] = c.at
			s.reconsider(key)
		}
		if c.remove {
			if c.done != nil {
				s.waiting[key] = append(s.waiting[key], c.done)
			}
			continue
		}
		c.fresh, c.id = c.fresh || dead, s.newID()
		s.writing[key] = c
	}
	clear(s.pending)
	return readers
}

// takeOver takes an intent of another store over that this process is to change although it
// left it to another process: on a node to remove it, in a central process for any change. All
// its records are read before. The caller holds the lock.
func (s *Store[T]) takeOver(key string, remove bool) {
	elsewhere := func(r *record) bool { return r.slot.node != s.options.Node }
	if s.taken[key] || !remove && s.options.Node != "" || !slices.ContainsFunc(s.view.records[key], elsewhere) {
		return
	}
	s.taken[key], s.behind = true, true
	delete(s.foreign, key)
}

// newID returns an ID that is greater than all that this process has seen.
func (s *Store[T]) newID() string {
	s.clock = max(s.clock+1, time.Now().UnixMilli())
	return fmt.Sprintf("%013d-%s", s.clock, s.writer[:6])
}

// apply writes until nothing remains to be written.
func (s *Store[T]) apply(ctx context.Context, last bool) error {
	for tries := 0; ; {
		err := s.catchUp(ctx)
		if err == nil {
			writes := s.plan(last)
			if len(writes) == 0 {
				return nil
			}
			err = s.perform(ctx, writes)
		}
		if err == nil {
			continue
		}
		if tries++; !conflicting(err) || tries == conflicts {
			return err
		}
	}
}

// catchUp reads all objects again if another process may have written to them.
func (s *Store[T]) catchUp(ctx context.Context) error {
	s.mu.Lock()
	behind := s.behind
	s.mu.Unlock()
	if !behind {
		return nil
	}
	return s.own(ctx, false)
}

// conflicting reports whether an error says that the object is not the one that was read.
func conflicting(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// plan returns the next writes, none of which depends on another: first objects whose last
// write had an unknown outcome, then new objects, shared parts, what refers to them, and
// removals. It finishes changes that are written.
func (s *Store[T]) plan(last bool) []*write {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := planner[T]{Store: s, writes: map[*slot]*write{}}
	for key, c := range s.writing {
		p.change(key, c)
	}
	if p.resolve() {
		return p.all()
	}
	if len(p.parts) > 0 { // their users follow
		clear(p.writes)
		p.placeParts()
	} else {
		p.placeEntries()
	}
	if created := p.created(); len(created) > 0 {
		return created
	}
	if len(p.writes) == 0 {
		p.sweep(last)
	}
	return p.all()
}

// finish completes a change that is durable. The caller holds the lock.
func (s *Store[T]) finish(key string, c *change[T]) {
	delete(s.writing, key)
	if c.fresh {
		delete(s.dead, key)
		s.reconsider(key)
	}
	// A change that was requested meanwhile counts, and is written next. It was
	// prepared without this one.
	later := s.pending[key]
	if later == nil || !later.remove {
		s.intents[key] = c.intent
		s.absorb(later, c.intent)
	}
	c.finish(nil)
}

// giveBack returns err to the callers whose changes were not written. A removal is
// retried, also one that a new intent was to replace. An intent is not retried: its
// caller knows from the error that it may not be durable.
func (s *Store[T]) giveBack(err error) {
	var changed []string
	s.mu.Lock()
	defer func() {
		s.mu.Unlock()
		for _, key := range changed {
			s.options.Changed(key)
		}
		if len(s.unused) > 0 || s.behind {
			signal(s.due)
		}
	}()
	if err == nil {
		return
	}
	for key, c := range s.writing {
		c.finish(err)
		delete(s.writing, key)
		s.reconsider(key)
		if s.evaluate(key) {
			changed = append(changed, key)
		}
	}
	for key, callers := range s.waiting {
		for _, done := range callers {
			done <- err
		}
		delete(s.waiting, key)
	}
}
