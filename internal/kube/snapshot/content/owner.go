package content

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// Ownership says which node's process acts on a content, with node deployment.
type Ownership int

const (
	// Own: this process acts on it.
	Own Ownership = iota
	// Elsewhere: another node's process acts on it.
	Elsewhere
	// Unknown: its volume has no PersistentVolume (yet), and it lacks
	// claim.ManagedByLabel, for example because a user created it.
	Unknown
	// Unplaced: a volume has no node affinity, and only the drivers know where it is: see Ask.
	Unplaced
	// Spread: its volumes are on several nodes. The process of the first volume's node
	// reports the error.
	Spread
)

// Owner decides which process acts on a content.
type Owner struct {
	driver  string
	scope   cluster.Scope
	volumes *cluster.Store[*corev1.PersistentVolume] // nil in a central process
}

// NewOwner requests the caches that it needs: none in a central process.
func NewOwner(env *cluster.Env) *Owner {
	owner := &Owner{driver: env.Driver, scope: env.Scope}
	if !env.Scope.Central() {
		owner.volumes = env.Set.Volumes()
		owner.volumes.Use(cluster.VolumeByHandle())
	}
	return owner
}

// Of returns the ownership of a content. Its label names the node, which
// snapshot-controller writes with --enable-distributed-snapshotting. Without the label,
// as on the contents of groups and of their members, the volumes decide.
func (o *Owner) Of(object metav1.Object, volumeHandles []string) Ownership {
	if o.scope.Central() {
		return Own
	}
	if node := object.GetLabels()[claim.ManagedByLabel]; node != claim.AnyNode {
		if node == claim.NodeLabelValue(o.scope.Node) {
			return Own
		}
		return Elsewhere
	}
	return o.ofVolumes(volumeHandles)
}

// hasTakenOver reports whether a content is labelled for a node and this is a central
// process: an earlier call may have been that node's, to another instance of the driver.
func (o *Owner) hasTakenOver(object metav1.Object) bool {
	return o.scope.Central() && object.GetLabels()[claim.ManagedByLabel] != ""
}

// Ask returns the ownership of a content that is Unplaced. It is Unknown if the driver of this node
// lacks the volume. The process of the node that has it labels the content.
func (o *Owner) Ask(ctx context.Context, env *cluster.Env, volumeHandles []string) (ownership Ownership, err error) {
	ownership = o.byVolumes(volumeHandles, func(pv *corev1.PersistentVolume) Ownership {
		own, failed := env.OwnsVolume(ctx, pv)
		err = errors.Join(err, failed)
		switch {
		case own:
			return Own
		case o.scope.Unplaced(pv):
			return Unknown
		}
		return Elsewhere
	})
	return ownership, err
}

func (o *Owner) ofVolumes(handles []string) Ownership {
	return o.byVolumes(handles, func(pv *corev1.PersistentVolume) Ownership {
		switch {
		case o.scope.Unplaced(pv):
			return Unplaced
		case o.scope.OwnsVolume(pv):
			return Own
		}
		return Elsewhere
	})
}

// byVolumes decides by the volumes, each of which is Own, Elsewhere, Unplaced or Unknown. If they
// are on several nodes, the node of the first volume reports Spread.
func (o *Owner) byVolumes(handles []string, of func(*corev1.PersistentVolume) Ownership) Ownership {
	ownership := Unknown
	for i, handle := range handles {
		found := o.volumes.By(cluster.VolumeByHandle(), cluster.HandleKey(o.driver, handle))
		if len(found) == 0 {
			return Unknown
		}
		switch one := of(found[0]); {
		case one == Unplaced, i == 0 && one != Own:
			return one
		case i == 0:
			ownership = Own
		case one != Own:
			ownership = Spread
		}
	}
	return ownership
}

// The nodes that could remove an orphan's finalizer are spread over a time, so
// that mostly one tries.
const (
	orphanGrace  = 15 * time.Second
	orphanSpread = time.Minute
)

// orphanDue is when this node may remove the finalizer of a content that has no
// owner and needs no driver: each node has its own time after the deletion.
func (o *Owner) orphanDue(object metav1.Object) time.Time {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(o.scope.Node + "/" + object.GetName()))
	own := orphanSpread / 1000 * time.Duration(hash.Sum32()%1000)
	return object.GetDeletionTimestamp().Add(orphanGrace + own)
}
