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

// identity returns which instance this is, its zone, and how many volumes it takes,
// on every system.
type identity struct {
	metadata Metadata
	config   limits.Config
	system   string // of the node, as GOOS names it
	log      *slog.Logger
	gauges   *gauges
	limit    atomic.Pointer[limits.Result]
	// known is the instance's ID, since it was asked for.
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
		return metadata.Instance{}, fmt.Errorf("who this instance is: %w: no source of metadata is configured", backend.ErrPrecondition)
	}
	instance, err := i.metadata.Instance(ctx)
	if err != nil {
		return instance, fmt.Errorf("who this instance is: %w", err)
	}
	i.known.Store(&instance.ID)
	return instance, nil
}

// id is the last known one, so that in general no source is asked.
func (i *identity) id(ctx context.Context) (string, error) {
	if id := i.known.Load(); id != nil {
		return *id, nil
	}
	instance, err := i.instance(ctx)
	return instance.ID, err
}

// info counts again at each call: interfaces and other programs' volumes come and go.
// foreign are the EBS volumes that are attached and not the driver's.
func (i *identity) info(instance metadata.Instance, foreign int) backend.NodeInfo {
	limit := limits.Compute(i.config, limits.Facts{
		InstanceType: instance.Type, Interfaces: instance.Interfaces, Disks: foreign,
	})
	i.tellLimit(limit)
	return backend.NodeInfo{
		ID: instance.ID, MaxVolumes: limit.Volumes, Topology: topologyOf(instance, i.system),
	}
}

// tellLimit logs a limit when it is another than last time.
func (i *identity) tellLimit(limit limits.Result) {
	if before := i.limit.Swap(&limit); before != nil && *before == limit {
		return
	}
	i.gauges.set(limit)
	i.log.Info("volumes that this instance can take", "limit", limit.Volumes, "derivation", limit.Derivation)
}
