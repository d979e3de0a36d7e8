package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Capacity returns the size in bytes that can still be created with these parameters
// and capabilities. It is 0 if the backend does not support them, since CSI asks for
// the capacity for such volumes.
func (g *Guard) Capacity(
	ctx context.Context, parameters map[string]string, capabilities []backend.Capability, at backend.Topology,
) (backend.Capacity, error) {
	reporter, err := feature[backend.CapacityReporter](g, "capacity")
	if err != nil {
		return backend.Capacity{}, err
	}
	if len(capabilities) > 0 && !g.possible(capabilities) {
		return backend.Capacity{}, nil
	}
	if err := g.checkParameters(parameters, nil); err != nil {
		return backend.Capacity{}, fmt.Errorf("capacity: %w", err)
	}
	return reporter.Capacity(ctx, parameters, at)
}

func (g *Guard) possible(capabilities []backend.Capability) bool {
	return g.CheckCapabilities(capabilities) == nil
}

// VolumeHealth lists the problems of a volume, none when it is well; ErrNotFound.
func (g *Guard) VolumeHealth(ctx context.Context, id string) ([]backend.HealthProblem, error) {
	reporter, err := feature[backend.HealthReporter](g, "health")
	if err != nil {
		return nil, err
	}
	return reporter.VolumeHealth(ctx, id)
}

// looksAtOnce bounds the volumes whose health is asked for at once: enough that
// a backend which batches its questions has something to batch.
const looksAtOnce = 100

// VolumeProblems are the problems of one volume that has some.
type VolumeProblems struct {
	Volume   backend.Volume
	Problems []backend.HealthProblem
}

// UnhealthyVolumes checks a page of at most maximum volumes (0: all) and returns those
// with problems; an empty page can have a next one.
func (g *Guard) UnhealthyVolumes(ctx context.Context, token string, maximum int) ([]VolumeProblems, string, error) {
	reporter, err := feature[backend.HealthReporter](g, "health")
	if err != nil {
		return nil, "", err
	}
	volumes, next, err := g.Volumes(ctx, token, maximum)
	if err != nil {
		return nil, "", err
	}
	checked := make([]VolumeProblems, len(volumes))
	group, looking := errgroup.WithContext(ctx)
	group.SetLimit(looksAtOnce)
	for i, volume := range volumes {
		group.Go(func() error {
			problems, err := reporter.VolumeHealth(looking, volume.ID)
			if errors.Is(err, backend.ErrNotFound) {
				return nil // deleted since the listing
			}
			if err != nil {
				return fmt.Errorf("health of volume %s: %w", volume.ID, err)
			}
			checked[i] = VolumeProblems{Volume: volume, Problems: problems}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, "", err
	}
	return slices.DeleteFunc(checked, func(v VolumeProblems) bool { return len(v.Problems) == 0 }), next, nil
}
