package intent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Load takes over what an earlier process left. Call it before Run. A record that
// cannot be read is logged, and stays where it is: what it says may be a volume.
func (s *Store[T]) Load(ctx context.Context) error {
	objects, err := s.takeOver(ctx)
	if err != nil {
		return fmt.Errorf("read the records of driver %s: %w", s.options.Driver, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards = nil
	clear(s.records)
	for _, object := range objects {
		s.shards = append(s.shards, &shard{name: object.Name, object: object})
		for key := range object.Data {
			if record, fine := s.decode(object, key); fine {
				s.records[key] = record
			}
		}
	}
	return nil
}

// takeOver lists the objects and gives each a new version. A write of the
// process before, which may still be on its way, is refused then: it would take
// out a record that this process has begun to act on.
func (s *Store[T]) takeOver(ctx context.Context) ([]*corev1.ConfigMap, error) {
	list, err := s.options.ConfigMaps.List(ctx, metav1.ListOptions{LabelSelector: s.options.selector()})
	if err != nil {
		return nil, err
	}
	var taken []*corev1.ConfigMap
	for i := range list.Items {
		object := &list.Items[i]
		if _, ours := s.options.number(object.Name); !ours {
			s.options.Logger.Warn("a ConfigMap of records with a foreign name is ignored", "name", object.Name)
			continue
		}
		if object, err = s.sign(ctx, object); err != nil {
			return nil, fmt.Errorf("take ConfigMap %s over: %w", list.Items[i].Name, err)
		}
		if object != nil {
			taken = append(taken, object)
		}
	}
	return taken, nil
}

// sign writes into an object whose it is now; nil if it is gone.
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
	return nil, errors.New("it is written to all the time; is another process at work for the same driver")
}

// Reread reads the object that holds a record again: somebody may have taken
// the record out by hand, who knows what became of its volume.
func (s *Store[T]) Reread(ctx context.Context, key string) (T, bool, error) {
	s.mu.Lock()
	var object *corev1.ConfigMap
	if targets := s.holders(key); len(targets) > 0 {
		object = targets[0].object
	}
	s.mu.Unlock()
	record, found := s.Get(key)
	if object == nil {
		return record, found, nil
	}
	live, err := s.options.ConfigMaps.Get(ctx, object.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		live, err = &corev1.ConfigMap{}, nil
	}
	if err != nil {
		return record, found, fmt.Errorf("read the records of driver %s: %w", s.options.Driver, err)
	}
	if _, there := live.Data[key]; there {
		return record, found, nil
	}
	s.Remove(key) // from memory; the write that follows finds it gone
	var none T
	return none, false, nil
}

// reread brings a shard, and what is known of its records, to what the API
// server has. Keys with changes of our own are left to those.
func (s *Store[T]) reread(ctx context.Context, target *shard, changes map[string]*change) error {
	live, err := s.options.ConfigMaps.Get(ctx, target.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		live, err = nil, nil
	}
	if err != nil {
		return err
	}
	var changed []string
	defer func() { // after the lock is given back
		for _, key := range changed {
			s.options.Changed(key)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	earlier := target.object
	target.object, target.stale = live, false
	own := func(key string) bool { return changes[key] != nil || s.pending[key] != nil }
	for key := range data(earlier) {
		if _, found := data(live)[key]; !found && !own(key) {
			delete(s.records, key)
			changed = append(changed, key)
		}
	}
	for key := range data(live) {
		if _, known := s.records[key]; known || own(key) {
			continue
		}
		if record, fine := s.decode(live, key); fine {
			s.records[key] = record
			changed = append(changed, key)
		}
	}
	return nil
}

func data(object *corev1.ConfigMap) map[string]string {
	if object == nil {
		return nil
	}
	return object.Data
}

func (s *Store[T]) decode(object *corev1.ConfigMap, key string) (record T, fine bool) {
	if err := json.Unmarshal([]byte(object.Data[key]), &record); err != nil {
		s.options.Logger.Error("a record cannot be read and is left alone; the volume it stands for may exist",
			"configmap", object.Name, "key", key, "error", err)
		return record, false
	}
	return record, true
}
