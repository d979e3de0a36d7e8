package nodeside

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/limits"
)

// NodeInfo says who this instance is, where, and how many volumes it can take.
// The last is counted anew each time: interfaces and volumes of others come and go.
func (n *Node) NodeInfo(ctx context.Context) (backend.NodeInfo, error) {
	if n.options.Metadata == nil {
		return backend.NodeInfo{}, fmt.Errorf("who this instance is: %w: no source of metadata is configured", backend.ErrPrecondition)
	}
	instance, err := n.options.Metadata.Instance(ctx)
	if err != nil {
		return backend.NodeInfo{}, fmt.Errorf("who this instance is: %w", err)
	}
	n.instance.Store(&instance.ID)
	foreign, err := n.foreignDisks(time.Now())
	if err != nil {
		return backend.NodeInfo{}, fmt.Errorf("count the volumes that are not the driver's: %w", err)
	}
	limit := limits.Compute(n.options.Limits, limits.Facts{
		InstanceType: instance.Type, Interfaces: instance.Interfaces, Disks: foreign,
	})
	n.tellLimit(limit)
	return backend.NodeInfo{
		ID: instance.ID, MaxVolumes: limit.Volumes, Topology: topologyOf(instance, runtime.GOOS),
	}, nil
}

// tellLimit logs a limit when it is another than last time.
func (n *Node) tellLimit(limit limits.Result) {
	if before := n.limit.Swap(&limit); before != nil && *before == limit {
		return
	}
	n.gauges.set(limit)
	n.options.Logger.Info("volumes that this instance can take", "limit", limit.Volumes, "derivation", limit.Derivation)
}
