package intent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

const (
	writeTimeout = 15 * time.Second // of one group commit, conflicts included
	lastTimeout  = 3 * time.Second  // for the last commit, when the process ends
	conflicts    = 5                // tries of one write
	failurePause = time.Second      // after a write that failed
)

// Run writes pending changes until ctx ends, and then a last time unless ctx's cause is
// ErrAbandoned. It returns nil.
func (s *Store[T]) Run(ctx context.Context) error {
	for {
		if !s.await(ctx) {
			if errors.Is(context.Cause(ctx), ErrAbandoned) {
				return nil
			}
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
			defer cancel()
			_ = s.commit(last) // each change's waiter has the error
			return nil
		}
		started := time.Now()
		pause := s.options.Spacing
		if err := s.commit(ctx); err != nil {
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

// commit writes everything that is pending, each object once.
func (s *Store[T]) commit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var (
		writing sync.WaitGroup
		mu      sync.Mutex
		failed  []error
	)
	s.refresh(ctx)
	for target, changes := range s.plan() {
		writing.Go(func() {
			if err := s.write(ctx, target, changes); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	writing.Wait()
	s.tidy()
	return errors.Join(failed...)
}

// refresh reads again the objects of writes whose outcome is unknown: such a write may
// have left a copy of an intent, which must not outlive a change of the intent. An
// object that cannot be read now is read before the next write.
func (s *Store[T]) refresh(ctx context.Context) {
	s.mu.Lock()
	shards := slices.Clone(s.shards)
	s.mu.Unlock()
	for _, one := range shards {
		if !one.stale {
			continue
		}
		if err := s.reread(ctx, one, nil); err != nil {
			s.options.Logger.Warn("a ConfigMap of intents cannot be read", "configmap", one.name, "error", err)
		}
	}
}

// plan assigns the pending changes to objects: to all that have the key already, else
// to the first with room.
func (s *Store[T]) plan() map[*shard]map[string]*change[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	planned := map[*shard]map[string]*change[T]{}
	added := map[*shard]int{}
	for key, c := range s.pending {
		targets := s.holders(key)
		switch {
		case len(targets) == 0 && c.text == "":
			c.finish(nil) // no object ever had it
		case len(targets) == 0:
			size := len(key) + len(c.text)
			target := s.room(size, added)
			added[target] += size
			targets = []*shard{target}
		}
		c.unwritten = len(targets)
		for _, target := range targets {
			if planned[target] == nil {
				planned[target] = map[string]*change[T]{}
			}
			planned[target][key] = c
		}
	}
	s.pending = map[string]*change[T]{}
	return planned
}

// holders returns the objects with a key: one, unless the outcome of a write was
// unknown and the intent was then written to another object.
func (s *Store[T]) holders(key string) []*shard {
	var found []*shard
	for _, candidate := range s.shards {
		if candidate.holds(key) {
			found = append(found, candidate)
		}
	}
	return found
}

func (s *Store[T]) room(size int, added map[*shard]int) *shard {
	used := map[string]bool{}
	for _, candidate := range s.shards {
		if !s.options.isOwn(candidate) {
			continue
		}
		if candidate.bytes()+added[candidate]+size <= s.options.ShardBytes {
			return candidate
		}
		used[candidate.name] = true
	}
	number := 0
	name := func() string { return Prefix(s.options.Driver, s.options.Node) + strconv.Itoa(number) }
	for used[name()] {
		number++
	}
	fresh := &shard{name: name(), node: s.options.Node}
	s.shards = append(s.shards, fresh)
	return fresh
}

// write writes the changes to one object, and retries after a conflict.
func (s *Store[T]) write(ctx context.Context, target *shard, changes map[string]*change[T]) error {
	var err error
	for range conflicts {
		if target.stale {
			if err = s.reread(ctx, target, changes); err != nil {
				break
			}
		}
		if err = s.send(ctx, target, changes); err == nil {
			return nil
		}
		target.stale = true // after any error: the write may have been done
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			break
		}
	}
	err = fmt.Errorf("ConfigMap %s: %w", target.name, err)
	s.giveBack(changes, err)
	return err
}

// apply returns a shard's object with the changes.
func (s *Store[T]) apply(target *shard, changes map[string]*change[T]) *corev1.ConfigMap {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.options.newObject(target)
	if target.object != nil {
		next = target.object.DeepCopy()
	}
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	for key, c := range changes {
		if c.text == "" {
			delete(next.Data, key)
		} else {
			next.Data[key] = c.text
		}
	}
	return next
}

func (s *Store[T]) send(ctx context.Context, target *shard, changes map[string]*change[T]) error {
	next := s.apply(target, changes)
	var err error
	switch {
	case len(next.Data) == 0 && target.object == nil:
		next = nil
	case len(next.Data) == 0: // an empty object is deleted
		version, uid := next.ResourceVersion, next.UID
		err = s.options.ConfigMaps.Delete(ctx, next.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
		next = nil
	case target.object == nil:
		next, err = s.options.ConfigMaps.Create(ctx, next, metav1.CreateOptions{})
	default:
		next, err = s.options.ConfigMaps.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	target.object = next
	for key, c := range changes {
		if c.unwritten--; c.unwritten > 0 {
			continue
		}
		// A change that was requested meanwhile counts, and is written next. It was
		// prepared without this one.
		later := s.pending[key]
		switch {
		case later != nil && later.text == "":
		case c.text == "":
			delete(s.intents, key)
		default:
			s.intents[key] = c.intent
			if later != nil && !later.after {
				s.absorb(later, c.intent)
			}
		}
		c.finish(nil)
	}
	return nil
}

// giveBack returns err to the callers of changes that could not be written. A removal
// is retried with the next write, also one that a new intent was to replace. An intent
// is not retried: its caller knows from the error that it is not durable.
func (s *Store[T]) giveBack(changes map[string]*change[T], err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := false
	for key, c := range changes {
		c.finish(err)
		if (c.text == "" || c.after) && s.pending[key] == nil {
			s.pending[key] = &change[T]{}
			again = true
		}
	}
	if again {
		signal(s.due)
	}
}

// tidy removes shards whose objects do not exist.
func (s *Store[T]) tidy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.shards[:0]
	for _, candidate := range s.shards {
		if candidate.object != nil || candidate.stale {
			kept = append(kept, candidate)
		}
	}
	s.shards = kept
}
