// Package snapshot serves a driver's VolumeSnapshotContents, as csi-snapshotter
// does: it asks the driver for the snapshots that snapshot-controller wants,
// tells when they are ready, and deletes them. It never sees a VolumeSnapshot.
//
// The content is the intent: before the driver is asked for a snapshot the
// content is marked, and it cannot go before the answer is recorded on it. So
// no snapshot exists that no content knows of, whenever the process ends.
package snapshot

import (
	"context"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// The reasons of events, which are csi-snapshotter's.
const (
	reasonCreation = "SnapshotCreationFailed"
	reasonCheck    = "SnapshotContentCheckandUpdateFailed"
	reasonDelete   = "SnapshotDeleteError"
)

// Options are what only this controller needs. The zero value is good.
type Options struct {
	// Naming is how the driver's snapshots are named (--snapshot-name-prefix,
	// --snapshot-name-uuid-length).
	Naming claim.Naming
	// ExtraMetadata tells the driver the names of the Kubernetes objects
	// (--extra-create-metadata).
	ExtraMetadata bool
	// Poll replaces content.DefaultPoll.
	Poll content.Poll
}

// Controller is the snapshot controller of one driver.
type Controller struct {
	env      *cluster.Env
	options  Options
	contents *cluster.Store[*snapshotv1.VolumeSnapshotContent]
	classes  *cluster.Store[*snapshotv1.VolumeSnapshotClass]
	writer   *content.Writer[*snapshotv1.VolumeSnapshotContent]
	owner    *content.Owner
	queue    *work.Queue
}

// New makes the controller and asks the caches for what it reads. Nothing is
// written or called before Run.
func New(env *cluster.Env, o Options) *Controller {
	if o.Poll == (content.Poll{}) {
		o.Poll = content.DefaultPoll()
	}
	c := &Controller{
		env: env, options: o, contents: env.Set.Contents(), classes: env.Set.SnapshotClasses(),
		owner: content.NewOwner(env), queue: env.Queue("csi-snapshotter-content"),
	}
	c.writer = &content.Writer[*snapshotv1.VolumeSnapshotContent]{
		Kind: "VolumeSnapshotContent", Keys: claim.VolumeSnapshotKeys(),
		API: env.Snapshots.SnapshotV1().VolumeSnapshotContents(), Store: c.contents, Recorder: env.Recorder,
	}
	c.contents.OnChange(c.changed)
	return c
}

// Run works until ctx ends. Where the cluster has no snapshots (their custom
// resources are not installed) it waits for them.
func (c *Controller) Run(ctx context.Context) error {
	group := snapshotv1.SchemeGroupVersion
	if err := c.env.WaitServed(ctx, group.Group, group.Version, "volumesnapshotcontents", "volumesnapshotclasses"); err != nil {
		return nil //nolint:nilerr // ctx has ended
	}
	return c.queue.Run(ctx, c.sync)
}

// changed is told of every change of a content.
func (c *Controller) changed(old, changed *snapshotv1.VolumeSnapshotContent) {
	if changed == nil || changed.Spec.Driver != c.env.Driver {
		return // of a content that is gone there is nothing to do: its finalizer was taken off
	}
	if old != nil && !content.Matters(view(old), view(changed), c.writer.Keys.BeingCreated) {
		return
	}
	if old != nil && old.ResourceVersion != changed.ResourceVersion {
		c.queue.Forget(changed.Name) // what failed before may be mended now
	}
	c.queue.Add(changed.Name)
}

func view(object *snapshotv1.VolumeSnapshotContent) content.View {
	return content.View{Meta: object.ObjectMeta, Spec: object.Spec, Ready: ready(object)}
}

// sync does what one content needs next, and says when to look again.
func (c *Controller) sync(ctx context.Context, name string) (time.Duration, error) {
	object, found := c.contents.Get(name)
	if !found || !c.ours(object) {
		return 0, nil
	}
	switch c.owner.Of(object, sources(object)) {
	case content.Elsewhere:
		return 0, nil
	case content.Unknown:
		return c.adopt(ctx, object)
	}
	done := next(object)
	object, err := c.writer.Own(ctx, object, c.owner)
	if err == nil {
		object, err = c.do(ctx, object)
	}
	return c.outcome(done, object, err)
}

// outcome is what the queue does after a step.
func (c *Controller) outcome(done step, object *snapshotv1.VolumeSnapshotContent, err error) (time.Duration, error) {
	switch needed := next(object); {
	case needed == stepNothing, needed == stepRelease && done == stepRelease:
		return content.Outcome(err, 0)
	case needed == stepPoll, needed == stepLook, needed == stepAwait:
		return content.Outcome(err, c.options.Poll.Next(takenAt(object), time.Now()))
	}
	return content.Outcome(err, content.Soon)
}

// takenAt is when a snapshot was taken, as far as known.
func takenAt(object *snapshotv1.VolumeSnapshotContent) time.Time {
	if object.Status != nil && object.Status.CreationTime != nil {
		return time.Unix(0, *object.Status.CreationTime)
	}
	return object.CreationTimestamp.Time
}

// ours tells whether a content is this driver's. A class of the same name that
// is another driver's means that the content is not what it seems.
func (c *Controller) ours(object *snapshotv1.VolumeSnapshotContent) bool {
	if object.Spec.Driver != c.env.Driver || object.Spec.Source.VolumeHandle == nil && object.Spec.Source.SnapshotHandle == nil {
		return false
	}
	if object.Spec.VolumeSnapshotClassName == nil || marked(object) || handleOf(object) != "" {
		return true // this driver was asked for it, whatever has become of the class
	}
	class, found := c.classes.Get(*object.Spec.VolumeSnapshotClassName)
	return !found || class.Driver == c.env.Driver
}

// do takes the next step.
func (c *Controller) do(ctx context.Context, object *snapshotv1.VolumeSnapshotContent) (*snapshotv1.VolumeSnapshotContent, error) {
	switch next(object) {
	case stepCut, stepPoll:
		return c.cut(ctx, object)
	case stepUnmark:
		return c.writer.Unmark(ctx, object)
	case stepLook:
		return c.look(ctx, object)
	case stepDelete:
		return c.delete(ctx, object)
	case stepRelease:
		return object, c.writer.Release(ctx, object)
	}
	return object, nil
}

// parse reads the content's class; the zero class if it names none.
func (c *Controller) parse(object *snapshotv1.VolumeSnapshotContent) (claim.SnapshotClass, error) {
	if object.Spec.VolumeSnapshotClassName == nil {
		return claim.SnapshotClass{}, nil
	}
	name := *object.Spec.VolumeSnapshotClassName
	class, found := c.classes.Get(name)
	if !found {
		return claim.SnapshotClass{}, fmt.Errorf("VolumeSnapshotClass %q does not exist", name)
	}
	return claim.ParseSnapshotClass(name, class.Parameters)
}

func names(object *snapshotv1.VolumeSnapshotContent) claim.SnapshotNames {
	ref := object.Spec.VolumeSnapshotRef
	return claim.SnapshotNames{Content: object.Name, Namespace: ref.Namespace, Name: ref.Name}
}
