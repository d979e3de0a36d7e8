package capacity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// room is the capacity that an object reports, in bytes.
type room struct {
	available int64
	largest   *int64 // maximum_volume_size; nil if the driver does not return it
}

// ask calls GetCapacity for a question and writes the answer for each class.
func (c *Controller) ask(ctx context.Context, key string) (after time.Duration, err error) {
	c.mu.Lock()
	q := c.plan.questions[key]
	if q != nil {
		c.asked[key] = time.Now()
	}
	c.mu.Unlock()
	if q == nil {
		return 0, nil
	}
	found, err := c.room(ctx, q)
	c.recordRefusal(q, err)
	if err != nil {
		return 0, err
	}
	var failed []error
	for _, class := range q.classes {
		failed = append(failed, c.reconcile(ctx, key, class, q.segment, found))
	}
	return untilNext(key, c.options.Poll, time.Now()), errors.Join(failed...)
}

func (c *Controller) room(ctx context.Context, q *question) (room, error) {
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	request := &csi.GetCapacityRequest{Parameters: q.parameters}
	if len(q.segment) > 0 {
		request.AccessibleTopology = q.segment.Topology()
	}
	answer, err := c.env.CSI.GetCapacity(ctx, request)
	if err != nil {
		return room{}, fmt.Errorf("capacity of StorageClass %q in %s: %w", q.classes[0], describe(q.segment), err)
	}
	found := room{available: answer.GetAvailableCapacity()}
	if largest := answer.GetMaximumVolumeSize(); largest != nil {
		found.largest = &largest.Value
	}
	if found.available < 0 || found.largest != nil && *found.largest < 0 {
		return room{}, fmt.Errorf("capacity of StorageClass %q in %s: "+
			"driver %s answered with a negative size (%d bytes available); its GetCapacity is wrong",
			q.classes[0], describe(q.segment), c.env.Driver, found.available)
	}
	return found, nil
}

func describe(segment claim.Term) string {
	if len(segment) == 0 {
		return "all nodes"
	}
	return segment.String()
}

// untilNext returns the time until the next call for a question. The hash of its
// key is the question's offset in the interval, so that the calls of one process,
// and of a thousand nodes, spread over it. A call that has just been made is
// repeated after half of the interval at the earliest.
func untilNext(key string, poll time.Duration, now time.Time) time.Duration {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(key))                       // a hash never fails
	moment := time.Duration(sum.Sum64() % uint64(poll)) //nolint:gosec // both are above zero, the result below poll
	into := time.Duration(now.UnixNano() % poll.Nanoseconds())
	wait := (moment - into + poll) % poll
	if wait < poll/2 {
		wait += poll
	}
	return wait
}

// reconcile creates or updates the object of a class in a segment.
func (c *Controller) reconcile(ctx context.Context, key, class string, segment claim.Term, found room) error {
	goal := goalOf(class, segment)
	c.mu.Lock()
	current := c.plan.goals[goal] == key
	c.mu.Unlock()
	if !current { // the class was replaced by one with other parameters meanwhile
		return nil
	}
	owner, err := c.ownerNow(ctx)
	if err != nil {
		return err
	}
	have := c.serving(goal)
	if len(have) == 0 {
		return c.create(ctx, goal, class, segment, found, owner)
	}
	for _, double := range have[1:] {
		if err := c.remove(ctx, double, "a second object for the same class and segment"); err != nil {
			return err
		}
	}
	return c.update(ctx, have[0], found, owner)
}

// serving lists the objects for a goal, the oldest first, so that of two objects
// every process keeps the same one.
func (c *Controller) serving(goal string) []*storagev1.CSIStorageCapacity {
	have := c.objects.By(byGoal(), goal)
	c.mu.Lock()
	made, ok := c.created[goal]
	c.mu.Unlock()
	if ok && !slices.ContainsFunc(have, func(o *storagev1.CSIStorageCapacity) bool { return cluster.KeyOf(o) == made }) {
		// The index lacks the object that this process created last until the watch brings it.
		if object, found := c.objects.Get(made); found {
			have = append(have, object)
		}
	}
	have = slices.DeleteFunc(have, func(o *storagev1.CSIStorageCapacity) bool { return o.DeletionTimestamp != nil })
	slices.SortFunc(have, func(a, b *storagev1.CSIStorageCapacity) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return have
}

func (c *Controller) create(
	ctx context.Context, goal, class string, segment claim.Term, found room, owner []metav1.OwnerReference,
) error {
	object := &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "csisc-", Namespace: c.env.Namespace, OwnerReferences: owner,
			Labels: map[string]string{claim.CapacityDriverLabel: c.env.Driver, claim.CapacityManagerLabel: c.manager},
		},
		StorageClassName: class, NodeTopology: selectorOf(segment),
	}
	found.fill(object)
	made, err := c.env.Core.StorageV1().CSIStorageCapacities(c.env.Namespace).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the CSIStorageCapacity of StorageClass %q for %s: %w", class, describe(segment), err)
	}
	c.mu.Lock()
	c.created[goal] = cluster.KeyOf(made)
	c.mu.Unlock()
	c.objects.Wrote(made)
	return nil
}

// update writes the object only if it differs: a poll without a change costs the
// API server nothing.
func (c *Controller) update(
	ctx context.Context, object *storagev1.CSIStorageCapacity, found room, owner []metav1.OwnerReference,
) error {
	if found.saidBy(object) && slices.EqualFunc(object.OwnerReferences, owner, sameOwner) {
		return nil
	}
	next := object.DeepCopy()
	next.OwnerReferences = owner
	found.fill(next)
	written, err := c.env.Core.StorageV1().CSIStorageCapacities(next.Namespace).Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update CSIStorageCapacity %s: %w", cluster.KeyOf(object), err)
	}
	c.objects.Wrote(written)
	return nil
}

func (r room) fill(object *storagev1.CSIStorageCapacity) {
	object.Capacity = resource.NewQuantity(r.available, resource.BinarySI)
	object.MaximumVolumeSize = nil
	if r.largest != nil {
		object.MaximumVolumeSize = resource.NewQuantity(*r.largest, resource.BinarySI)
	}
}

func (r room) saidBy(object *storagev1.CSIStorageCapacity) bool {
	if object.Capacity == nil || object.Capacity.Value() != r.available {
		return false
	}
	if r.largest == nil || object.MaximumVolumeSize == nil {
		return r.largest == nil && object.MaximumVolumeSize == nil
	}
	return object.MaximumVolumeSize.Value() == *r.largest
}

// drop deletes an object unless the current plan has it.
func (c *Controller) drop(ctx context.Context, name string) error {
	object, found := c.objects.Get(name)
	if !found {
		return nil
	}
	c.mu.Lock()
	want := c.plan == nil || c.plan.goals[goalOfObject(object)] != ""
	c.mu.Unlock()
	if want {
		return nil
	}
	return c.remove(ctx, object, "its class or segment is gone")
}

// remove deletes the object by UID: another of the same name stays.
func (c *Controller) remove(ctx context.Context, object *storagev1.CSIStorageCapacity, why string) error {
	err := c.env.Core.StorageV1().CSIStorageCapacities(object.Namespace).Delete(ctx, object.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(object.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete CSIStorageCapacity %s (%s): %w", cluster.KeyOf(object), why, err)
	}
	c.log.InfoContext(ctx, "CSIStorageCapacity deleted",
		"object", cluster.KeyOf(object), "class", object.StorageClassName, "reason", why)
	return nil
}
