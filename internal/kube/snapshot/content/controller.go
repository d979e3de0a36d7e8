package content

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/unlabelled"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// Options configure the controllers of both kinds. The zero value is valid.
type Options struct {
	// Naming is how the driver's snapshots are named (--snapshot-name-prefix and
	// --snapshot-name-uuid-length, or their group variants).
	Naming claim.Naming
	// ExtraMetadata adds the names of the Kubernetes objects to the parameters
	// (--extra-create-metadata).
	ExtraMetadata bool
	// Poll replaces DefaultPoll.
	Poll Poll
}

// Controller serves the contents of one kind and one driver.
type Controller[T cluster.Object] struct {
	Traits
	kind      Kind[T]
	env       *cluster.Env
	options   Options
	writer    *Writer[T]
	owner     *Owner
	queue     *work.Queue
	recording reservations
	// unlabelled finds the contents without claim.ManagedByLabel that name a snapshot of the
	// driver; nil without cluster.Scope.Labelled.
	unlabelled *unlabelled.Finder[T]
}

// New returns a controller. Nothing is written or called before Run.
func New[T cluster.Object](
	env *cluster.Env, t Traits, kind Kind[T], store *cluster.Store[T], api cluster.Client[T], o Options,
) *Controller[T] {
	if o.Poll == (Poll{}) {
		o.Poll = DefaultPoll()
	}
	c := &Controller[T]{
		Traits: t, kind: kind, env: env, options: o, owner: NewOwner(env),
		writer: &Writer[T]{Kind: t.Kind, Keys: t.Keys, API: api, Store: store, Recorder: env.Recorder},
	}
	if env.Scope.Labelled {
		c.unlabelled = unlabelled.New(env, store, claim.ManagedByLabel, c.namesSnapshot, cluster.LabelPolicy{})
	}
	c.queue = env.Queue(t.Queue, cluster.FlowOf(store, c.flow))
	env.ShowOperations(c.queue, cluster.OperationOf(store, c.operations), t.Operation, t.Deletion)
	store.Use(byHandle(kind))
	store.OnChange(func(old, changed T) { c.changed(old, changed) })
	return c
}

// Run works until ctx ends. In a cluster without these custom resources it waits
// for them.
func (c *Controller[T]) Run(ctx context.Context) error {
	if err := c.env.WaitServed(ctx, c.Group.Group, c.Group.Version, c.Resources...); err != nil {
		return nil
	}
	defer c.unlabelled.Close()
	return c.queue.Run(ctx, c.sync)
}

// Failures returns how often a content has failed in succession.
func (c *Controller[T]) Failures(name string) int { return c.queue.Failures(name) }

// changed handles a change of a content.
func (c *Controller[T]) changed(old, changed T) {
	var none T
	if any(changed) == any(none) {
		c.gone(old)
		return
	}
	after := c.kind.View(changed)
	if after.Handle != "" {
		c.recording.release(after.Meta.UID)
	}
	if after.Driver != c.env.Driver {
		return
	}
	if any(old) != any(none) {
		if !Matters(c.kind.View(old), after, c.Keys.BeingCreated) {
			return
		}
		if old.GetResourceVersion() != changed.GetResourceVersion() {
			c.queue.Forget(changed.GetName()) // what failed before may succeed now
		}
	}
	c.queue.Add(changed.GetName())
}

// sync performs the next step of a content and returns when it is due again.
func (c *Controller[T]) sync(ctx context.Context, name string) (time.Duration, error) {
	object, found := c.writer.Store.Get(name)
	if !found {
		return 0, nil
	}
	v := c.kind.View(object)
	if !c.forDriver(v) {
		return 0, nil
	}
	ownership := c.owner.Of(object, v.Volumes)
	if ownership == Unplaced {
		var err error
		if ownership, err = c.owner.Ask(ctx, c.env, v.Volumes); err != nil {
			return 0, err
		}
	}
	switch ownership {
	case Elsewhere:
		return 0, nil
	case Unknown:
		return c.adopt(ctx, object, v)
	case Spread:
		return c.rejectSpread(ctx, object)
	}
	object, err := c.writer.Own(ctx, object, c.owner)
	if err == nil {
		object, err = c.Do(ctx, object)
	}
	return c.outcome(c.Next(v), c.next(object), object, err)
}

// outcome returns the result of a step for the queue.
func (c *Controller[T]) outcome(done, needed Step, object T, err error) (time.Duration, error) {
	switch {
	case needed == StepNothing, needed == StepRelease && done == StepRelease:
		return Outcome(err, 0)
	case needed == StepPoll, needed == StepInspect, needed == StepAwait:
		return Outcome(err, c.options.Poll.Next(c.kind.View(object).since(), time.Now()))
	}
	return Outcome(err, Soon)
}

// forDriver reports whether a content is for this driver. A class of the same name that
// is another driver's contradicts the content.
func (c *Controller[T]) forDriver(v View) bool {
	if v.Driver != c.env.Driver || !v.Static && len(v.Volumes) == 0 {
		return false
	}
	if v.Class == nil || c.marked(v) || v.Handle != "" {
		return true // this driver may have received the request, also if the class has changed
	}
	driver, _, found := c.kind.Class(*v.Class)
	return !found || driver == c.env.Driver
}

func (c *Controller[T]) next(object T) Step { return c.Next(c.kind.View(object)) }

// is returns the condition that a content still needs a step.
func (c *Controller[T]) is(desired Step) func(T) bool {
	return func(object T) bool { return c.next(object) == desired }
}

// Do performs the next step of a content.
func (c *Controller[T]) Do(ctx context.Context, object T) (_ T, err error) {
	ctx, end := c.traced(ctx, object)
	defer func() { end(err) }()
	switch c.next(object) {
	case StepCreate, StepPoll:
		return c.create(ctx, object)
	case StepUnmark:
		return c.writer.Unmark(ctx, object)
	case StepInspect:
		return c.inspect(ctx, object)
	case StepDelete:
		return c.delete(ctx, object)
	case StepRelease:
		return object, c.writer.Release(ctx, object)
	}
	return object, nil
}

func (c *Controller[T]) hit(point string) error {
	return c.env.Failpoints.Hit(c.Failpoints + "/" + point)
}

// class parses the content's class; it returns the zero class if the content
// names none.
func (c *Controller[T]) class(v View) (claim.SnapshotClass, error) {
	if v.Class == nil {
		return claim.SnapshotClass{}, nil
	}
	_, parameters, found := c.kind.Class(*v.Class)
	if !found {
		return claim.SnapshotClass{}, fmt.Errorf("%s %q does not exist", c.ClassKind, *v.Class)
	}
	return c.ParseClass(*v.Class, parameters)
}

func (c *Controller[T]) classOf(object T) func() (claim.SnapshotClass, error) {
	return func() (claim.SnapshotClass, error) { return c.class(c.kind.View(object)) }
}

// inspect asks for a snapshot that exists.
func (c *Controller[T]) inspect(ctx context.Context, object T) (T, error) {
	answer, err := c.kind.Inspect(ctx, object, c.classOf(object))
	if err != nil {
		return c.failed(ctx, object, err)
	}
	if answer.Status == nil {
		return object, nil
	}
	return c.record(ctx, object, c.is(StepInspect), answer)
}

// record writes the driver's answer into a content while still is true.
func (c *Controller[T]) record(ctx context.Context, object T, still func(T) bool, answer Answer) (T, error) {
	object, err := c.writer.Place(ctx, object, still, answer.Topology)
	if err != nil {
		return object, err
	}
	return c.writer.Status(ctx, object, still, answer.Status)
}

// adopt serves a content whose node is unknown. A snapshot belongs to the node
// whose driver has it, so all nodes ask theirs.
func (c *Controller[T]) adopt(ctx context.Context, object T, v View) (time.Duration, error) {
	switch needed := c.Next(v); {
	case needed == StepNothing:
		return 0, nil
	case needed == StepRelease:
		after, err := c.writer.Orphan(ctx, object, c.owner)
		return Outcome(err, after)
	case v.Desired == "":
		return c.options.Poll.Max, nil // the PersistentVolumes of its volumes may come
	}
	found, err := c.kind.Has(ctx, object, c.classOf(object))
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", c.Kind, object.GetName(), err)
	}
	if !found {
		return c.options.Poll.Max, nil
	}
	_, err = c.writer.Claim(ctx, object, c.owner)
	return Outcome(err, Soon)
}

// errSpread is final: the driver of no node can take such a snapshot.
var errSpread = errors.New("the volumes of the group are on different nodes, " +
	"and each node takes the snapshots of its own volumes only: select volumes of one node")

// rejectSpread shows that a group cannot be snapshotted; no call was made.
func (c *Controller[T]) rejectSpread(ctx context.Context, object T) (time.Duration, error) {
	switch c.next(object) {
	case StepRelease:
		return Outcome(c.writer.Release(ctx, object), 0)
	case StepCreate:
		object, _ = c.failed(ctx, object, errSpread)
		if !shows(c.kind.View(object), errSpread) {
			return c.options.Poll.Max, nil
		}
	}
	return 0, nil // nothing to repeat: volumes do not move
}

// delete deletes the driver's snapshot and clears the status. The state in the
// API server decides: the policy may just have been set to Retain.
func (c *Controller[T]) delete(ctx context.Context, object T) (T, error) {
	if !c.writer.Store.Reached(object) {
		return object, errBehind
	}
	object, err := c.writer.Recheck(ctx, object, c.is(StepDelete))
	if err != nil {
		return object, err
	}
	if err := c.checkTwin(ctx, object); err != nil {
		return object, c.writer.Undeleted(ctx, object, c.ReasonDelete, c.Noun, err)
	}
	if err := c.callDelete(ctx, object); err != nil {
		return object, c.writer.Undeleted(ctx, object, c.ReasonDelete, c.Noun, err)
	}
	if err := c.hit("deleted"); err != nil {
		return object, err
	}
	cleared := map[string]any{}
	for _, field := range c.Cleared {
		cleared[field] = nil
	}
	object, err = c.writer.Status(ctx, object, c.is(StepDelete), cleared)
	if err != nil {
		return object, c.writer.Undeleted(ctx, object, c.ReasonDelete, c.Noun, err)
	}
	if err := c.hit("cleared"); err != nil {
		return object, err
	}
	return object, c.writer.Release(ctx, object)
}

func (c *Controller[T]) callDelete(ctx context.Context, object T) error {
	secrets, err := DeletionSecret(ctx, c.env, c.Keys, object.GetAnnotations())
	if err != nil {
		return err
	}
	bounded, cancel := c.env.Call(ctx)
	defer cancel()
	return c.kind.Delete(bounded, object, secrets)
}
