package attach

import (
	"context"
	"fmt"
	"sync"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// tenure knows whether the cache of VolumeAttachments has what other processes did before this
// one began to work. The cache of a standby that takes the lease over is old while its watch is
// interrupted: it may have attachments that are gone, and lack that another one has their name.
type tenure struct {
	mu      sync.Mutex
	version string // of the kind when this process began to work; "" until it is read
	reached bool
}

// current returns false if that is not known.
func (t *tenure) current(ctx context.Context, store *cluster.Store[*storagev1.VolumeAttachment]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reached {
		return true
	}
	if t.version == "" {
		version, err := store.Version(ctx)
		if err != nil {
			return false
		}
		t.version = version
	}
	t.reached = store.ReachedVersion(t.version)
	return t.reached
}

// confirm returns the attachment as the API server has it, if the cache may be older than
// the lease: what the driver is called for must not be what an earlier process has ended. It returns
// cluster.ErrGone if the attachment is gone.
func (c *Controller) confirm(ctx context.Context, va *storagev1.VolumeAttachment) (*storagev1.VolumeAttachment, error) {
	if c.tenure.current(ctx, c.attachments) {
		return va, nil
	}
	live, err := c.attachments.Reread(ctx, va)
	if err != nil {
		return nil, fmt.Errorf("before the driver is called: %w", err)
	}
	return live, nil
}
