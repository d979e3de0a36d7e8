package intent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Load takes over the intents of an earlier process. Call it before Run. An intent
// that cannot be read is logged and kept: its volume may exist.
func (s *Store[T]) Load(ctx context.Context) error {
	s.mu.Lock()
	s.view = newView()
	clear(s.intents)
	clear(s.taken)
	clear(s.foreign)
	clear(s.unused)
	s.mu.Unlock()
	if err := s.own(ctx, true); err != nil {
		return fmt.Errorf("read the intents of driver %s: %w", s.options.Driver, err)
	}
	signal(s.due) // an earlier process may have left what no longer counts
	return nil
}

// own reads all objects and marks those of this process's store, until it finds them as
// it marked them. From then on each write of another process conflicts: it could remove
// an intent that this process has begun to act on, or change one without its knowledge.
// load says that this process is to take over from earlier ones.
func (s *Store[T]) own(ctx context.Context, load bool) error {
	for range conflicts {
		list, err := s.options.ConfigMaps.List(ctx, metav1.ListOptions{LabelSelector: s.options.selector()})
		if err != nil {
			return err
		}
		s.learn(list.Items, load)
		unmarked := s.unmarked()
		if len(unmarked) == 0 {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.behind = false
			return nil
		}
		var group errgroup.Group
		group.SetLimit(parallel)
		for _, t := range unmarked {
			group.Go(func() error { return s.sign(ctx, t) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return errors.New("each write conflicts with another: does another process act for the same driver")
}

// unmarked returns the slots that this process has to mark: those of its store that
// another one has written, and each other one once, since several nodes mark those.
func (s *Store[T]) unmarked() (found []*slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.view.slots {
		own := t.node == s.options.Node
		if own && !s.marked(t.object) || !own && (t.stale || !t.signed) {
			found = append(found, t)
		}
	}
	return found
}

// sign writes this process's mark to a slot. A conflict is no error: the objects are read
// again.
func (s *Store[T]) sign(ctx context.Context, t *slot) error {
	s.mu.Lock()
	next := t.object.DeepCopy()
	s.mark(next)
	s.mu.Unlock()
	signed, err := s.options.ConfigMaps.Update(ctx, next, metav1.UpdateOptions{})
	if conflicting(err) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if apierrors.IsForbidden(err) && t.node != s.options.Node {
		// The node works without it; Unserved reports its intents.
		s.options.Logger.Warn("a ConfigMap of intents of an earlier deployment is not taken over", "configmap", t.name, "error", err)
		s.refuse(t)
		return nil
	}
	if err != nil {
		t.stale = true
		return fmt.Errorf("take ConfigMap %s over: %w", t.name, err)
	}
	t.stale, t.signed = false, true
	s.hold(t, signed)
	return nil
}

// refuse leaves the intents of a slot to others. The caller holds the lock.
func (s *Store[T]) refuse(t *slot) {
	for _, r := range t.all {
		if !r.change && s.taken[r.key] {
			delete(s.taken, r.key)
			delete(s.intents, r.key)
			s.foreign[r.key] = t.name
		}
	}
	s.hold(t, nil)
}

// learn makes a list of all objects what this process knows, and merges what others have
// changed into its intents and its own changes.
func (s *Store[T]) learn(items []corev1.ConfigMap, load bool) {
	var changed []string
	defer func() { // after s.mu is unlocked
		for _, key := range changed {
			s.options.Changed(key)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, replaced := map[string]bool{}, map[string][]string{}
	for _, r := range s.replace(items, load) {
		keys[r.key] = true
		if r.slot.all[r.entry] != r && !r.change {
			replaced[r.key] = append(replaced[r.key], r.ID)
		}
	}
	for key := range keys {
		if s.renewed(key, replaced[key]) {
			delete(s.intents, key)
		}
		if s.evaluate(key) && !load {
			changed = append(changed, key)
		}
		s.reconsider(key)
	}
}

// replace makes a list of all objects the view, and returns the records that were added or
// removed.
func (s *Store[T]) replace(items []corev1.ConfigMap, load bool) (touched []*record) {
	listed := map[string]bool{}
	for t, object := range s.relevant(items, load) {
		listed[t.name] = true
		if version(t.object) != object.ResourceVersion {
			t.stale = false // a write that is still under way would conflict
			// Then not all that refers to its parts is known.
			t.shared = t.shared || !load && t.node != s.options.Node
		}
		touched = append(touched, s.hold(t, object)...)
		if s.removable(t) && len(t.all) == 0 {
			s.noteUnused(t, time.Now())
		}
	}
	for name, t := range s.view.slots {
		if !listed[name] {
			touched = append(touched, s.hold(t, nil)...)
		}
	}
	return touched
}

// renewed reports whether another process has removed an intent of the key, and put
// another one.
func (s *Store[T]) renewed(key string, replaced []string) bool {
	stored := s.view.intents(key, s.options.Node)
	return len(stored) > 0 && slices.ContainsFunc(replaced, func(id string) bool {
		return !slices.ContainsFunc(stored, func(r *record) bool { return r.ID == id })
	})
}

// relevant returns the objects whose intents this process completes, with their slots: all
// of its store, and those of other stores that have to do with intents that Load took
// over.
func (s *Store[T]) relevant(items []corev1.ConfigMap, load bool) map[*slot]*corev1.ConfigMap {
	found, others := map[*slot]*corev1.ConfigMap{}, newView()
	for i := range items {
		object := &items[i]
		t, ok := s.options.slotOf(object)
		switch {
		case !ok:
			if load && object.Annotations[driverAnnotation] == s.options.Driver {
				s.options.Logger.Warn("a ConfigMap of intents is ignored: its name is not that of the store it names",
					"configmap", object.Name)
			}
		case t.node == s.options.Node:
			found[s.known(t)] = object
		default:
			others.put(t, object)
		}
	}
	if load {
		s.divide(others)
	}
	for name, t := range others.slots {
		_, known := s.view.slots[name]
		if s.concerns(others, t) || s.options.Node == "" && (load || known) {
			found[s.known(t)] = t.object
		}
	}
	return found
}

// known returns the slot of the same name that this process knows, or the slot itself.
func (s *Store[T]) known(t *slot) *slot {
	if earlier := s.view.slots[t.name]; earlier != nil {
		return earlier
	}
	return &slot{name: t.name, node: t.node, shard: t.shard}
}

// divide notes which intents of other stores this process completes, and which it leaves
// to others.
func (s *Store[T]) divide(others *view) {
	for key := range others.records {
		if s.options.Node == "" {
			s.taken[key] = true
			continue
		}
		if _, known := s.foreign[key]; known {
			continue
		}
		for _, base := range others.intents(key, s.options.Node) {
			intent, err := s.decode(others, base)
			if err != nil {
				s.logDamaged(base, err)
			}
			if err == nil && s.kind.NodeOf(intent) == s.options.Node {
				s.taken[key] = true
			} else if !s.taken[key] {
				s.foreign[key] = base.slot.name
			}
		}
	}
}

// concerns reports whether a slot of another store has a record of an intent that this
// process completes, or a part of one. A node does not write to other objects of central
// processes: all nodes see those, and each would write to them.
func (s *Store[T]) concerns(others *view, t *slot) bool {
	for _, r := range t.all {
		if s.taken[r.key] {
			return true
		}
	}
	for name := range parts(t.object) {
		for key := range s.taken {
			if slices.ContainsFunc(others.records[key], func(r *record) bool { return r.part() == part{t.node, name} }) {
				return true
			}
		}
	}
	return false
}

func (s *Store[T]) logDamaged(r *record, err error) {
	s.options.Logger.Error("an intent cannot be read and is kept; its volume may exist",
		"configmap", r.slot.name, "key", r.key, "error", err)
}

// evaluate makes what is stored of a key the intent of the key, and merges it into this
// process's own changes. It reports whether the intent may differ now: a removed intent
// stays removed, also if a new one is to replace it. The caller holds the lock.
func (s *Store[T]) evaluate(key string) bool {
	if !s.holds(key) {
		_, known := s.intents[key]
		if s.writing[key] != nil || s.pending[key] != nil && !s.pending[key].remove {
			return false
		}
		delete(s.intents, key)
		return known
	}
	base := s.view.intents(key, s.options.Node)[0]
	if base.slot.node != s.options.Node && !s.taken[key] {
		return false
	}
	stored, err := s.read(s.view, key)
	if err != nil {
		s.logDamaged(base, err)
		return false
	}
	writing, pending := s.writing[key], s.pending[key]
	s.absorb(writing, stored)
	s.absorb(pending, stored)
	_, dead := s.dead[key]
	for _, c := range []*change[T]{writing, pending} {
		dead = dead || c != nil && (c.remove || c.fresh)
	}
	if dead {
		return false
	}
	if known, found := s.intents[key]; found {
		stored = s.kind.Merge(stored, known)
	}
	s.intents[key] = stored
	return true
}

// Foreign reports whether an earlier deployment wrote an intent of the key that
// this process does not complete. Acting for the key too could create a volume twice.
// It asks the API server only about intents that Load found.
func (s *Store[T]) Foreign(ctx context.Context, key string) (bool, error) {
	s.mu.Lock()
	name, found := s.foreign[key]
	s.mu.Unlock()
	if !found {
		return false, nil
	}
	live, err := s.options.ConfigMaps.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("read the intents of driver %s: %w", s.options.Driver, err)
	}
	if err == nil {
		if _, stored := live.Data[key]; stored {
			return true, nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.foreign, key)
	return false, nil
}

// Reread returns an intent as the API server has it: another process may have changed
// it, or an administrator who has handled its volume may have removed it.
func (s *Store[T]) Reread(ctx context.Context, key string) (intent T, found bool, err error) {
	current, err := s.current(ctx, key)
	if err == nil && !current {
		err = s.refresh(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	intent, found = s.intents[key]
	if err == nil && found && s.holds(key) {
		_, err = s.read(s.view, key)
	}
	if err != nil {
		err = fmt.Errorf("read the intents of driver %s: %w", s.options.Driver, err)
	}
	return intent, found, err
}

// current reports whether no other process has written to a key since this process read
// it. A process that takes over this store's log marks all its objects, as this one did;
// others need not.
func (s *Store[T]) current(ctx context.Context, key string) (bool, error) {
	s.mu.Lock()
	known, owned := map[string]string{}, !s.behind
	for _, r := range s.view.intents(key, s.options.Node) {
		known[r.slot.name] = version(r.slot.object)
		owned = owned && s.options.logs(r.slot)
	}
	s.mu.Unlock()
	if !owned {
		return false, nil
	}
	for name, version := range known {
		live, err := s.options.ConfigMaps.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, err
		case live.ResourceVersion != version:
			return false, nil
		}
	}
	return true, nil
}

// refresh has Run read all objects again.
func (s *Store[T]) refresh(ctx context.Context) error {
	done := make(chan error, 1)
	s.mu.Lock()
	s.readers = append(s.readers, done)
	s.mu.Unlock()
	signal(s.urgent)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ended:
		return errors.New("the process ends")
	}
}
