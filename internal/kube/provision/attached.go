package provision

import (
	"context"
	"fmt"
	"sync"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// attached knows to which nodes volumes are attached, for drivers with
// PUBLISH_UNPUBLISH_VOLUME.
//
// The attacher of this process publishes a volume only for a VolumeAttachment that their common
// cache has. What an earlier process published, the cache of a standby that takes the lease over
// may lack: while its watch is interrupted, for half a minute and more.
type attached struct {
	store *cluster.Store[*storagev1.VolumeAttachment] // nil without PUBLISH_UNPUBLISH_VOLUME

	mu     sync.Mutex
	listed bool
	// newest is the last VolumeAttachment of before this process began to delete volumes; nil for
	// none.
	newest *storagev1.VolumeAttachment
}

// to returns the node to which the cache says that a PersistentVolume is attached, or is being
// attached or detached.
func (a *attached) to(pv string) (node string, ok bool) {
	if a.store == nil {
		return "", false
	}
	for _, attachment := range a.store.By(cluster.AttachmentByVolume(), pv) {
		return attachment.Spec.NodeName, true
	}
	return "", false
}

// current reports whether the cache has what earlier processes published. It lists the
// VolumeAttachments once.
func (a *attached) current(ctx context.Context) (bool, error) {
	if a.store == nil {
		return true, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.listed {
		newest, err := a.store.Newest(ctx)
		if err != nil {
			return false, fmt.Errorf("before a volume is deleted: %w", err)
		}
		a.listed, a.newest = true, newest
	}
	if a.newest != nil && !a.store.Reached(a.newest) {
		return false, nil
	}
	a.newest = nil
	return true, nil
}
