package guard

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Attach makes a volume visible to a node and returns the publish context.
func (g *Guard) Attach(ctx context.Context, volume, node string, spec backend.AttachSpec) (map[string]string, error) {
	attacher, err := feature[backend.Attacher](g, "attachment")
	if err != nil {
		return nil, err
	}
	if err := g.checkCapability(spec.Capability); err != nil {
		return nil, fmt.Errorf("volume_capability: %w", err)
	}
	unlock, err := g.holdAttachment(volume)
	if err != nil {
		return nil, err
	}
	defer unlock()
	published, err := attacher.Attach(ctx, volume, node, spec)
	if err != nil {
		return nil, fmt.Errorf("attach volume %s to node %s: %w", volume, node, err)
	}
	return published, nil
}

// Detach takes a volume away from a node, or from all when node is "".
func (g *Guard) Detach(ctx context.Context, volume, node string) error {
	attacher, err := feature[backend.Attacher](g, "attachment")
	if err != nil {
		return err
	}
	unlock, err := g.holdAttachment(volume)
	if err != nil {
		return err
	}
	defer unlock()
	if err := attacher.Detach(ctx, volume, node); err != nil {
		return fmt.Errorf("detach volume %s from node %q: %w", volume, node, err)
	}
	return nil
}

// holdAttachment keeps other work away from the volume, and other calls of
// Attach and Detach where the backend cannot take them together.
func (g *Guard) holdAttachment(volume string) (func(), error) {
	return g.lockVolume(g.traits.JoinsAttachment, volume)
}

// lockVolume locks a volume for one call. If together, calls of the same kind share
// the lock.
func (g *Guard) lockVolume(together bool, volume string) (func(), error) {
	if together {
		return g.share("volume "+volume, volumeID(volume))
	}
	return g.lock("volume "+volume, volumeID(volume))
}
