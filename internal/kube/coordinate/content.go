package coordinate

import (
	"context"
	"time"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// contents are the contents of snapshots or of group snapshots.
type contents[T cluster.Object] struct {
	kind    string
	store   *cluster.Store[T]
	patch   func(ctx context.Context, content T, ops ...cluster.Op) error
	driver  func(T) string
	volumes func(T) []string // handles of the volumes that it is of
}

func snapshotContents(env *cluster.Env) contents[*snapshotv1.VolumeSnapshotContent] {
	store := env.Set.Contents()
	return contents[*snapshotv1.VolumeSnapshotContent]{
		kind: "VolumeSnapshotContent", store: store,
		patch: func(ctx context.Context, content *snapshotv1.VolumeSnapshotContent, ops ...cluster.Op) error {
			_, err := store.Patch(ctx, env.Snapshots.SnapshotV1().VolumeSnapshotContents(), content, ops...)
			return err
		},
		driver: func(content *snapshotv1.VolumeSnapshotContent) string { return content.Spec.Driver },
		volumes: func(content *snapshotv1.VolumeSnapshotContent) []string {
			if content.Spec.Source.VolumeHandle == nil {
				return nil
			}
			return []string{*content.Spec.Source.VolumeHandle}
		},
	}
}

func groupContents(env *cluster.Env) contents[*groupv1.VolumeGroupSnapshotContent] {
	store := env.Set.GroupContents()
	return contents[*groupv1.VolumeGroupSnapshotContent]{
		kind: "VolumeGroupSnapshotContent", store: store,
		patch: func(ctx context.Context, content *groupv1.VolumeGroupSnapshotContent, ops ...cluster.Op) error {
			_, err := store.Patch(ctx, env.Snapshots.GroupsnapshotV1().VolumeGroupSnapshotContents(), content, ops...)
			return err
		},
		driver:  func(content *groupv1.VolumeGroupSnapshotContent) string { return content.Spec.Driver },
		volumes: func(content *groupv1.VolumeGroupSnapshotContent) []string { return content.Spec.Source.VolumeHandles },
	}
}

// listen queues the driver's contents that lack a node.
func (k contents[T]) listen(driver string, add func(name string)) {
	k.store.OnChange(func(_, now T) {
		var none T
		if any(now) != any(none) && k.driver(now) == driver && now.GetLabels()[claim.ManagedByLabel] == claim.AnyNode {
			add(now.GetName())
		}
	})
}

func (c *Controller) syncContent(ctx context.Context, name string) (time.Duration, error) {
	return labelContent(ctx, c, c.contents, name)
}

func (c *Controller) syncGroup(ctx context.Context, name string) (time.Duration, error) {
	return labelContent(ctx, c, c.groups, name)
}

// labelContent labels a content with the node of its volume. If no PersistentVolume shows
// the node, the label AnyNode lets each node's process ask its driver for the snapshot.
func labelContent[T cluster.Object](ctx context.Context, c *Controller, k contents[T], name string) (time.Duration, error) {
	content, found := k.store.Get(name)
	if !found || k.driver(content) != c.env.Driver {
		return 0, nil
	}
	value, current := c.nodeOfHandles(k.volumes(content)), content.GetLabels()
	if node, labelled := current[claim.ManagedByLabel]; node != claim.AnyNode || labelled && value == node {
		return 0, nil
	}
	if err := c.hit("label/content"); err != nil {
		return 0, err
	}
	err := k.patch(ctx, content, cluster.TestVersion(content.GetResourceVersion()), cluster.SetLabel(content, claim.ManagedByLabel, value))
	return ended(err, "label %s %q with its node", k.kind, name)
}

// nodeOfHandles returns the label of the first volume's node. The process of that node
// reports volumes of other nodes.
func (c *Controller) nodeOfHandles(handles []string) string {
	if len(handles) == 0 {
		return claim.AnyNode
	}
	for _, pv := range c.volumes.By(cluster.VolumeByHandle(), cluster.HandleKey(c.env.Driver, handles[0])) {
		if value, known := c.labelOfVolume(pv); known {
			return value
		}
	}
	return claim.AnyNode
}
