package intent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Load takes over the intents of an earlier process. Call it before Run. An intent
// that cannot be read is logged and kept: its volume may exist.
func (s *Store[T]) Load(ctx context.Context) error {
	shards, others, err := s.takeOver(ctx)
	if err != nil {
		return fmt.Errorf("read the intents of driver %s: %w", s.options.Driver, err)
	}
	// This store's own objects come last: they are newer than an earlier deployment's.
	foreign := slices.DeleteFunc(slices.Clone(shards), func(one *shard) bool { return one.node == s.options.Node })
	shards = append(foreign, slices.DeleteFunc(shards, func(one *shard) bool { return one.node != s.options.Node })...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards, s.foreign = shards, others
	clear(s.intents)
	for _, one := range shards {
		for key := range one.object.Data {
			intent, ok := s.decode(one, key)
			if !ok {
				continue
			}
			if earlier, found := s.intents[key]; found {
				intent = s.merge(earlier, intent)
			}
			s.intents[key] = intent
		}
	}
	return nil
}

// takeOver lists the objects and updates each to a new version. The API server then
// rejects a write of the earlier process that is still under way: it could remove an
// intent that this process has begun to act on. foreign has the keys of the intents
// that other processes complete, and their objects.
func (s *Store[T]) takeOver(ctx context.Context) (taken []*shard, foreign map[string]string, err error) {
	list, err := s.options.ConfigMaps.List(ctx, metav1.ListOptions{LabelSelector: s.options.selector()})
	if err != nil {
		return nil, nil, err
	}
	foreign = map[string]string{}
	for i := range list.Items {
		object := &list.Items[i]
		found, ok := s.options.shardOf(object)
		if !ok {
			if object.Annotations[driverAnnotation] == s.options.Driver {
				s.options.Logger.Warn("a ConfigMap of intents is ignored: its name is not that of the store it names",
					"configmap", object.Name)
			}
			continue
		}
		own, others := s.divide(found)
		for _, key := range others {
			foreign[key] = found.name
		}
		if !s.ownsAll(found) && len(own) == 0 {
			continue
		}
		found.object, err = s.sign(ctx, object)
		if apierrors.IsForbidden(err) && !s.options.isOwn(found) {
			// The node works without it; Unserved reports its intents.
			s.options.Logger.Warn("a ConfigMap of intents of an earlier deployment is not taken over",
				"configmap", found.name, "error", err)
			for _, key := range own {
				foreign[key] = found.name
			}
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("take ConfigMap %s over: %w", list.Items[i].Name, err)
		}
		if found.object != nil {
			taken = append(taken, found)
		}
	}
	return taken, foreign, nil
}

// divide returns the keys of the intents in an object that this process completes, and
// of those that it leaves to others. A node does not write to a central process's
// object without intents for this node: all nodes see that object, and each would
// write to it.
func (s *Store[T]) divide(one *shard) (own, others []string) {
	for key := range one.object.Data {
		if _, ok := s.decode(one, key); ok {
			own = append(own, key)
		} else if !s.ownsAll(one) {
			others = append(others, key)
		}
	}
	return own, others
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

// ownsAll reports whether all intents in an object are this process's to complete.
func (s *Store[T]) ownsAll(one *shard) bool {
	return s.options.Node == "" || one.node == s.options.Node
}

// sign writes this process's mark to an object; nil if the object no longer exists.
func (s *Store[T]) sign(ctx context.Context, object *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	var err error
	for range conflicts {
		if object.Annotations == nil {
			object.Annotations = map[string]string{}
		}
		object.Annotations[writerAnnotation] = s.writer
		var signed *corev1.ConfigMap
		if signed, err = s.options.ConfigMaps.Update(ctx, object, metav1.UpdateOptions{}); err == nil {
			return signed, nil
		}
		if apierrors.IsConflict(err) {
			object, err = s.options.ConfigMaps.Get(ctx, object.Name, metav1.GetOptions{})
		}
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("each write conflicts with another: does another process act for the same driver")
}

// Reread returns an intent as the API server has it: another process may have changed
// it, or an administrator who has handled its volume may have removed it.
func (s *Store[T]) Reread(ctx context.Context, key string) (T, bool, error) {
	s.mu.Lock()
	var names []string
	for _, target := range s.holders(key) {
		names = append(names, target.name)
	}
	s.mu.Unlock()
	intent, found := s.Get(key)
	if len(names) == 0 {
		return intent, found, nil
	}
	var current T
	stored := false
	for _, name := range names {
		live, err := s.options.ConfigMaps.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return intent, found, fmt.Errorf("read the intents of driver %s: %w", s.options.Driver, err)
		}
		text, ok := live.Data[key]
		if !ok {
			continue
		}
		var copied T
		if err := json.Unmarshal([]byte(text), &copied); err != nil {
			return intent, found, fmt.Errorf("entry %s of ConfigMap %s of intents is damaged: %w", key, name, err)
		}
		if stored {
			copied = s.merge(current, copied)
		}
		current, stored = copied, true
	}
	if stored {
		if !found {
			return intent, false, nil
		}
		return current, true, nil
	}
	s.Remove(key) // from memory; every object lacks it
	var none T
	return none, false, nil
}

// reread updates a shard and its intents in memory from the API server. It merges
// intents that another process has changed, also into this process's own changes.
func (s *Store[T]) reread(ctx context.Context, target *shard, changes map[string]*change[T]) error {
	live, err := s.options.ConfigMaps.Get(ctx, target.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		live, err = nil, nil
	}
	if err != nil {
		return err
	}
	var changed []string
	defer func() { // after s.mu is unlocked
		for _, key := range changed {
			s.options.Changed(key)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	earlier := target.object
	target.object, target.stale = live, false
	for key := range data(earlier) {
		if _, found := data(live)[key]; !found && changes[key] == nil && s.pending[key] == nil {
			delete(s.intents, key)
			changed = append(changed, key)
		}
	}
	for key, text := range data(live) {
		if before, found := data(earlier)[key]; found && before == text {
			continue
		}
		if stored, ok := s.decode(target, key); ok && s.learn(key, stored, changes[key], s.pending[key]) {
			changed = append(changed, key)
		}
	}
	return nil
}

// learn merges an intent that another process has stored into memory and into this
// process's own changes of the key, and reports whether it did so in memory: a removed
// intent stays removed, also if a new one is to replace it. The next Put merges with memory,
// also after a change that fails. The caller holds the lock.
func (s *Store[T]) learn(key string, stored T, own ...*change[T]) bool {
	removed := false
	for _, c := range own {
		if c != nil {
			s.absorb(c, stored)
			removed = removed || c.text == "" || c.after
		}
	}
	if removed {
		return false
	}
	if known, found := s.intents[key]; found {
		stored = s.merge(stored, known)
	}
	s.intents[key] = stored
	return true
}

func data(object *corev1.ConfigMap) map[string]string {
	if object == nil {
		return nil
	}
	return object.Data
}

// decode reads an intent of an object; ok is false for one that is damaged, or
// that another process completes.
func (s *Store[T]) decode(one *shard, key string) (intent T, ok bool) {
	if err := json.Unmarshal([]byte(one.object.Data[key]), &intent); err != nil {
		s.options.Logger.Error("an intent cannot be read and is kept; its volume may exist",
			"configmap", one.name, "key", key, "error", err)
		return intent, false
	}
	return intent, s.ownsAll(one) || s.nodeOf(intent) == s.options.Node
}
