package nodeside

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// NodeInfo returns the ID of this instance, its topology and its limit of volumes.
func (n *Node) NodeInfo(ctx context.Context) (backend.NodeInfo, error) {
	instance, err := n.identity.instance(ctx)
	if err != nil {
		return backend.NodeInfo{}, err
	}
	foreign, err := n.foreignDisks(time.Now())
	if err != nil {
		return backend.NodeInfo{}, fmt.Errorf("count the volumes that are not the driver's: %w", err)
	}
	return n.identity.info(instance, foreign), nil
}
