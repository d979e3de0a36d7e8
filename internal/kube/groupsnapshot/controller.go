// Package groupsnapshot serves a driver's VolumeGroupSnapshotContents, as
// csi-snapshotter does: it asks the driver for snapshots of several volumes at
// one instant, tells when they are ready, and deletes them. The contents of the
// single snapshots in a group are snapshot-controller's to make and package
// snapshot's to serve.
//
// As there, the content is the intent: it is marked before the driver is asked.
package groupsnapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// The reasons of events, which are csi-snapshotter's.
const (
	reasonCreation = "GroupSnapshotCreationFailed"
	reasonCheck    = "GroupSnapshotContentCheckandUpdateFailed"
	reasonDelete   = "GroupSnapshotDeleteError"
)

// Options are what only this controller needs. The zero value is good.
type Options struct {
	// Naming is how the driver's group snapshots are named
	// (--groupsnapshot-name-prefix, --groupsnapshot-name-uuid-length).
	Naming claim.Naming
	// ExtraMetadata tells the driver the names of the Kubernetes objects
	// (--extra-create-metadata).
	ExtraMetadata bool
	// Poll replaces content.DefaultPoll.
	Poll content.Poll
}

// Controller is the group snapshot controller of one driver.
type Controller struct {
	env      *cluster.Env
	options  Options
	contents *cluster.Store[*groupv1.VolumeGroupSnapshotContent]
	classes  *cluster.Store[*groupv1.VolumeGroupSnapshotClass]
	writer   *content.Writer[*groupv1.VolumeGroupSnapshotContent]
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
		env: env, options: o, contents: env.Set.GroupContents(), classes: env.Set.GroupClasses(),
		owner: content.NewOwner(env), queue: env.Queue("csi-snapshotter-groupsnapshotcontent"),
	}
	c.writer = &content.Writer[*groupv1.VolumeGroupSnapshotContent]{
		Kind: "VolumeGroupSnapshotContent", Keys: claim.GroupSnapshotKeys(),
		API: env.Snapshots.GroupsnapshotV1().VolumeGroupSnapshotContents(), Store: c.contents, Recorder: env.Recorder,
	}
	c.contents.OnChange(c.changed)
	return c
}

// Run works until ctx ends. Where the cluster has no group snapshots (their
// custom resources are not installed) it waits for them.
func (c *Controller) Run(ctx context.Context) error {
	group := groupv1.SchemeGroupVersion
	if err := c.env.WaitServed(ctx, group.Group, group.Version, "volumegroupsnapshotcontents", "volumegroupsnapshotclasses"); err != nil {
		return nil //nolint:nilerr // ctx has ended
	}
	return c.queue.Run(ctx, c.sync)
}

// changed is told of every change of a content.
func (c *Controller) changed(old, changed *groupv1.VolumeGroupSnapshotContent) {
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

func view(object *groupv1.VolumeGroupSnapshotContent) content.View {
	return content.View{Meta: object.ObjectMeta, Spec: object.Spec, Ready: ready(object)}
}

// sync does what one content needs next, and says when to look again.
func (c *Controller) sync(ctx context.Context, name string) (time.Duration, error) {
	object, found := c.contents.Get(name)
	if !found || !c.ours(object) {
		return 0, nil
	}
	switch c.owner.Of(object, object.Spec.Source.VolumeHandles) {
	case content.Elsewhere:
		return 0, nil
	case content.Unknown:
		return c.adopt(ctx, object)
	case content.Spread:
		return c.refuseSpread(ctx, object)
	}
	done := next(object)
	object, err := c.writer.Own(ctx, object, c.owner)
	if err == nil {
		object, err = c.do(ctx, object)
	}
	return c.outcome(done, object, err)
}

// outcome is what the queue does after a step.
func (c *Controller) outcome(done step, object *groupv1.VolumeGroupSnapshotContent, err error) (time.Duration, error) {
	switch needed := next(object); {
	case needed == stepNothing, needed == stepRelease && done == stepRelease:
		return content.Outcome(err, 0)
	case needed == stepLook:
		return content.Outcome(err, c.options.Poll.Next(takenAt(object), time.Now()))
	}
	return content.Outcome(err, content.Soon)
}

// takenAt is when a group snapshot was taken, as far as known.
func takenAt(object *groupv1.VolumeGroupSnapshotContent) time.Time {
	if object.Status != nil && object.Status.CreationTime != nil {
		return object.Status.CreationTime.Time
	}
	return object.CreationTimestamp.Time
}

// ours tells whether a content is this driver's.
func (c *Controller) ours(object *groupv1.VolumeGroupSnapshotContent) bool {
	if object.Spec.Driver != c.env.Driver || !static(object) && len(object.Spec.Source.VolumeHandles) == 0 {
		return false
	}
	if object.Spec.VolumeGroupSnapshotClassName == nil || marked(object) || handleOf(object) != "" {
		return true // this driver was asked for it, whatever has become of the class
	}
	class, found := c.classes.Get(*object.Spec.VolumeGroupSnapshotClassName)
	return !found || class.Driver == c.env.Driver
}

// do takes the next step.
func (c *Controller) do(ctx context.Context, object *groupv1.VolumeGroupSnapshotContent) (*groupv1.VolumeGroupSnapshotContent, error) {
	switch next(object) {
	case stepCut:
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

// able tells why the driver cannot be asked about groups.
func (c *Controller) able(ctx context.Context) error {
	plugin, err := c.env.CSI.PluginCapabilities(ctx)
	if err != nil {
		return err
	}
	groups, err := c.env.CSI.GroupCapabilities(ctx)
	if err != nil {
		return err
	}
	if !plugin.Groups || !groups.Snapshots {
		return fmt.Errorf("the driver %s takes no group snapshots (it lacks GROUP_CONTROLLER_SERVICE or CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT)", c.env.Driver)
	}
	return nil
}

// parse reads the content's class; the zero class if it names none.
func (c *Controller) parse(object *groupv1.VolumeGroupSnapshotContent) (claim.SnapshotClass, error) {
	if object.Spec.VolumeGroupSnapshotClassName == nil {
		return claim.SnapshotClass{}, nil
	}
	name := *object.Spec.VolumeGroupSnapshotClassName
	class, found := c.classes.Get(name)
	if !found {
		return claim.SnapshotClass{}, fmt.Errorf("VolumeGroupSnapshotClass %q does not exist", name)
	}
	return claim.ParseGroupSnapshotClass(name, class.Parameters)
}

func names(object *groupv1.VolumeGroupSnapshotContent) claim.SnapshotNames {
	ref := object.Spec.VolumeGroupSnapshotRef
	return claim.SnapshotNames{Content: object.Name, Namespace: ref.Namespace, Name: ref.Name}
}

// errSpread is final: the driver of no node can take such a snapshot.
var errSpread = errors.New("the volumes of the group are on different nodes, and each node takes the snapshots of its own volumes only: select volumes of one node")
