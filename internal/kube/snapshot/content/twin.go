package content

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// byHandle finds contents by the HandleKey of the snapshot that they are about.
func byHandle[T cluster.Object](kind Kind[T]) cluster.Index[T] {
	return cluster.Index[T]{Name: "handle", Values: func(object T) []string {
		v := kind.View(object)
		if v.Desired == "" {
			return nil
		}
		return []string{cluster.HandleKey(v.Driver, v.Desired)}
	}}
}

// sharing returns the contents of the cache that are about a content's snapshot,
// except those of other nodes: drivers that work on each node alone may give the
// same ID on two nodes.
func (c *Controller[T]) sharing(v View) []T {
	if v.Desired == "" {
		return nil
	}
	var same []T
	for _, other := range c.writer.Store.By(byHandle(c.kind), cluster.HandleKey(v.Driver, v.Desired)) {
		if c.owner.Of(other, c.kind.View(other).Volumes) != Elsewhere {
			same = append(same, other)
		}
	}
	return same
}

// checkTwin returns an error while another content keeps the snapshot from being
// deleted, and errBehind while the cache is older than the content: then it may lack
// a content that was made before this one was deleted. With Scope.Labelled it also lacks
// one that no process has labelled yet, such as an administrator's.
func (c *Controller[T]) checkTwin(ctx context.Context, object T) error {
	if !c.writer.Store.Reached(object) {
		return errBehind
	}
	v := c.kind.View(object)
	twin := lifecycle.FindSnapshotTwin(c.contentsOf(v), c.shared(v))
	if twin == "" && c.unlabelled != nil {
		others, err := c.unlabelled.List(ctx)
		if err != nil {
			return err
		}
		twin = lifecycle.FindSnapshotTwin(c.sharedOf(others), c.shared(v))
	}
	if twin != "" {
		return fmt.Errorf("%s %q names the same %s", c.Kind, twin, c.Noun)
	}
	return nil
}

// namesSnapshot reports whether a content names a snapshot of the driver. One that waits for
// its snapshot gets its label before.
func (c *Controller[T]) namesSnapshot(object T) bool {
	v := c.kind.View(object)
	return v.Driver == c.env.Driver && v.Desired != ""
}

// contentsOf iterates over the contents of the cache that are about a content's snapshot.
func (c *Controller[T]) contentsOf(v View) iter.Seq[lifecycle.SnapshotContent] {
	return c.sharedOf(slices.Values(c.sharing(v)))
}

func (c *Controller[T]) sharedOf(contents iter.Seq[T]) iter.Seq[lifecycle.SnapshotContent] {
	return func(yield func(lifecycle.SnapshotContent) bool) {
		for other := range contents {
			if !yield(c.shared(c.kind.View(other))) {
				return
			}
		}
	}
}

// checkNew returns an error if the answer to a creation, which status records, is about
// the snapshot of another content. It reserves the ID for this content until the cache
// has the content with its snapshot: the answer to the write of the status may be lost.
func (c *Controller[T]) checkNew(object T, status map[string]any) error {
	v := c.kind.View(object)
	id, _ := status[c.HandleField].(string)
	if v.Handle != "" || id == "" {
		return nil // the answer is about the recorded snapshot
	}
	reserved := c.recording.reserve(cluster.HandleKey(v.Driver, id), v.Meta.UID)
	v.Desired = id
	if err := lifecycle.CheckNewSnapshot(c.contentsOf(v), c.shared(v)); err != nil {
		c.recording.release(v.Meta.UID)
		return err
	}
	if !reserved {
		return fmt.Errorf("the driver answered with %s %q, which another content records now", c.Noun, id)
	}
	return nil
}

// reservations have the HandleKeys of new snapshots until their contents name them.
type reservations struct {
	mu       sync.Mutex
	contents map[string]types.UID // by HandleKey
}

// reserve returns false if another content has reserved the key. A content has one
// reservation.
func (r *reservations) reserve(key string, content types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(content)
	if _, taken := r.contents[key]; taken {
		return false
	}
	if r.contents == nil {
		r.contents = map[string]types.UID{}
	}
	r.contents[key] = content
	return true
}

func (r *reservations) release(content types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(content)
}

func (r *reservations) remove(content types.UID) {
	maps.DeleteFunc(r.contents, func(_ string, other types.UID) bool { return other == content })
}

func (c *Controller[T]) shared(v View) lifecycle.SnapshotContent {
	return lifecycle.SnapshotContent{Name: v.Meta.Name, Driver: v.Driver, Handle: v.Desired, Deletes: c.Next(v) == StepDelete}
}

// gone handles a content that does not exist any more: the deletion of others may
// have waited for it.
func (c *Controller[T]) gone(object T) {
	v := c.kind.View(object)
	if v.Driver != c.env.Driver {
		return
	}
	c.recording.release(v.Meta.UID)
	for _, other := range c.sharing(v) {
		c.queue.Forget(other.GetName())
		c.queue.Add(other.GetName())
	}
}
