package content

import (
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// Place says whose a content is, where every node acts for itself.
type Place int

const (
	// Here: this process acts on it.
	Here Place = iota
	// Elsewhere: another node does.
	Elsewhere
	// Unknown: nothing says whose it is. Its volume has no PersistentVolume, or
	// none yet, or it was created by hand without claim.ManagedByLabel.
	Unknown
	// Spread: its volumes are on several nodes, and this is the node that says so.
	Spread
)

// Owner finds out whose contents are.
type Owner struct {
	driver  string
	scope   cluster.Scope
	volumes *cluster.Store[*corev1.PersistentVolume] // nil in the middle of the cluster
}

// NewOwner asks for the caches that it needs: none in the middle of the cluster.
func NewOwner(env *cluster.Env) *Owner {
	owner := &Owner{driver: env.Driver, scope: env.Scope}
	if !env.Scope.Central() {
		owner.volumes = env.Set.Volumes()
		owner.volumes.Use(cluster.VolumeByHandle())
	}
	return owner
}

// Of returns the owner of a content: its label names it, which snapshot-controller
// writes with --enable-distributed-snapshotting, and else the volumes that it
// is of. Snapshot-controller does not label the contents of groups and of their
// members.
func (o *Owner) Of(object metav1.Object, volumeHandles []string) Place {
	if o.scope.Central() {
		return Here
	}
	if node, labelled := object.GetLabels()[claim.ManagedByLabel]; labelled {
		if node == o.scope.Node {
			return Here
		}
		return Elsewhere
	}
	return o.ofVolumes(volumeHandles)
}

// ofVolumes: of several nodes, the one that has the first volume speaks for all.
func (o *Owner) ofVolumes(handles []string) Place {
	place := Unknown
	for _, handle := range handles {
		found := o.volumes.By(cluster.VolumeByHandle(), cluster.HandleKey(o.driver, handle))
		if len(found) == 0 {
			return Unknown
		}
		here := o.scope.OwnsVolume(found[0])
		switch {
		case place == Unknown && here:
			place = Here
		case place == Unknown:
			return Elsewhere
		case !here:
			place = Spread
		}
	}
	return place
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
