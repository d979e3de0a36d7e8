package nodeside

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/limits"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
)

// identity reports the instance, its topology and its limit of volumes, on every system.
type identity struct {
	metadata Metadata
	config   limits.Config
	system   string // of the node, as GOOS names it
	log      *slog.Logger
	gauges   *gauges
	limit    atomic.Pointer[limits.Result]
	// known is the instance's ID; nil until a source has returned it.
	known atomic.Pointer[string]
}

func newIdentity(o Options, system string) (*identity, error) {
	if err := o.Limits.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrInvalid, err)
	}
	gauges, err := newGauges(o.Registerer)
	if err != nil {
		return nil, err
	}
	return &identity{metadata: o.Metadata, config: o.Limits, system: system, log: o.Logger, gauges: gauges}, nil
}

func (i *identity) instance(ctx context.Context) (metadata.Instance, error) {
	if i.metadata == nil {
		return metadata.Instance{}, fmt.Errorf("identify this instance: %w: no source of metadata is configured",
			backend.ErrPrecondition)
	}
	instance, err := i.metadata.Instance(ctx)
	if err != nil {
		return instance, fmt.Errorf("identify this instance: %w", err)
	}
	i.known.Store(&instance.ID)
	return instance, nil
}

// id returns the cached ID of the instance, or asks the sources if there is none.
func (i *identity) id(ctx context.Context) (string, error) {
	if id := i.known.Load(); id != nil {
		return *id, nil
	}
	instance, err := i.instance(ctx)
	return instance.ID, err
}

// info computes the limit at each call, because interfaces and volumes of other programs
// change. foreign is the number of attached EBS volumes that are not the driver's.
func (i *identity) info(instance metadata.Instance, foreign int) backend.NodeInfo {
	limit := limits.Compute(i.config, limits.Facts{
		InstanceType: instance.Type, Interfaces: instance.Interfaces, Disks: foreign,
	})
	i.reportLimit(limit)
	return backend.NodeInfo{
		ID: instance.ID, MaxVolumes: limit.Volumes, Topology: topologyOf(instance, i.system),
	}
}

// reportLimit logs a limit and sets its metrics if it has changed.
func (i *identity) reportLimit(limit limits.Result) {
	if before := i.limit.Swap(&limit); before != nil && *before == limit {
		return
	}
	i.gauges.set(limit)
	i.log.Info("volumes that this instance can take", "limit", limit.Volumes, "derivation", limit.Derivation)
}
