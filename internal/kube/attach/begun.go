package attach

import (
	"context"
	"errors"
	"fmt"
	"sync"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// begun are the publications that this process has begun and whose success no status
// records yet. If the VolumeAttachment of one is removed by force, with its finalizer, nothing
// else records it, and the volume would stay published to the node.
type begun struct {
	mu   sync.Mutex
	what map[string]attempt // by the VolumeAttachment's name
}

type attempt struct {
	attachment *storagev1.VolumeAttachment
	intent     intent
}

func (b *begun) add(va *storagev1.VolumeAttachment, what intent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.what == nil {
		b.what = map[string]attempt{}
	}
	b.what[va.Name] = attempt{va, what}
}

func (b *begun) of(name string) (attempt, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.what[name]
	return p, ok
}

func (b *begun) remove(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.what, name)
}

// settleBegun ends what was begun for a name: the status records its success after all, because
// only the answer to that write was lost, or the attachment is gone or another one.
func (c *Controller) settleBegun(ctx context.Context, key string, va *storagev1.VolumeAttachment, found bool) error {
	left, ok := c.begun.of(key)
	switch {
	case !ok:
		return nil
	case found && va.UID == left.attachment.UID:
		if va.Status.Attached && !c.forced.is(va.UID) {
			c.begun.remove(key)
		}
		return nil
	}
	err := c.undo(ctx, key)
	if err == nil || !found || !c.toAttach(va) {
		return err
	}
	err = fmt.Errorf("an earlier VolumeAttachment of this name was removed by force: %w", err)
	if shown := c.saveError(ctx, va, attachError, err); !errors.Is(shown, cluster.ErrGone) {
		return shown
	}
	return err
}

// undo unpublishes what was begun for an attachment that is gone, if anything was. A call of the
// driver that failed may have published the volume. The caller has the lock of the key.
func (c *Controller) undo(ctx context.Context, key string) error {
	left, ok := c.begun.of(key)
	if !ok {
		return nil
	}
	if err := c.callUnpublish(ctx, left.attachment, left.intent); err != nil {
		return err
	}
	c.begun.remove(key)
	return nil
}
