package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Capacity tells what can still be created with these parameters and
// capabilities: nothing where they are not possible here, as CSI asks for the
// room that such volumes would find.
func (g *Guard) Capacity(ctx context.Context, parameters map[string]string, capabilities []backend.Capability, at backend.Topology) (backend.Capacity, error) {
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

// VolumeProblems are the problems of one volume that has some.
type VolumeProblems struct {
	Volume   backend.Volume
	Problems []backend.HealthProblem
}

// UnhealthyVolumes looks at a page of at most maximum volumes (0: all) and
// returns those that have problems; so a page may be empty and yet have a next.
func (g *Guard) UnhealthyVolumes(ctx context.Context, token string, maximum int) ([]VolumeProblems, string, error) {
	reporter, err := feature[backend.HealthReporter](g, "health")
	if err != nil {
		return nil, "", err
	}
	volumes, next, err := g.Volumes(ctx, token, maximum)
	if err != nil {
		return nil, "", err
	}
	var unwell []VolumeProblems
	for _, volume := range volumes {
		problems, err := reporter.VolumeHealth(ctx, volume.ID)
		switch {
		case errors.Is(err, backend.ErrNotFound): // deleted since the listing
		case err != nil:
			return nil, "", fmt.Errorf("health of volume %s: %w", volume.ID, err)
		case len(problems) > 0:
			unwell = append(unwell, VolumeProblems{Volume: volume, Problems: problems})
		}
	}
	return unwell, next, nil
}
