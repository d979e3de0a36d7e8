package ebs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// requestedVolumes are the IDs of the volumes that this process was asked to attach. A
// new process has none. For each attachment that a listing lacks, the orchestrator then
// repeats ControllerPublishVolume, which changes nothing and adds the volume.
type requestedVolumes struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (a *requestedVolumes) add(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ids == nil {
		a.ids = map[string]bool{}
	}
	a.ids[id] = true
}

func (a *requestedVolumes) remove(ids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		delete(a.ids, id)
	}
}

func (a *requestedVolumes) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.ids))
}

// missingFrom describes the volumes that a listing lacks, and removes those that it has
// and those that do not exist. The lookups share their describes.
func (a *requestedVolumes) missingFrom(
	ctx context.Context, listed []cloud.Volume, find func(context.Context, string) (cloud.Volume, error),
) ([]cloud.Volume, error) {
	for _, v := range listed {
		a.remove(v.ID)
	}
	var (
		lookups sync.WaitGroup
		mu      sync.Mutex
		found   []cloud.Volume
		failed  error
	)
	for _, id := range a.all() {
		lookups.Go(func() {
			v, err := find(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, backend.ErrNotFound):
				a.remove(id)
			case err != nil:
				failed = err
			default:
				found = append(found, v)
			}
		})
	}
	lookups.Wait()
	return found, failed
}
