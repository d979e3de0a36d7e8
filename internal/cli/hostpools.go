package cli

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/holdfast-csi/holdfast/internal/backend/usage"
	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// knownPools are the pools of the drivers in this process, for the API of a host.
type knownPools struct {
	mu sync.Mutex
	of map[string]*usage.Pools // by driver
}

// add adds those of a driver that starts; a driver that starts again has new ones.
func (k *knownPools) add(driver string, pools *usage.Pools) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil {
		k.of = map[string]*usage.Pools{}
	}
	k.of[driver] = pools
}

// list returns the state of each pool.
func (k *knownPools) list() (all []api.Pool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for driver, pools := range k.of {
		for _, state := range pools.States() {
			all = append(all, poolOf(driver, state))
		}
	}
	slices.SortFunc(all, func(a, b api.Pool) int {
		return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func poolOf(driver string, state usage.State) api.Pool {
	pool := api.Pool{
		Driver: driver, Name: state.Name, Size: state.Size, Available: state.Available, Promised: state.Promised,
		Used: state.UsedBy(),
	}
	if state.Forecast && !math.IsInf(state.FullSeconds, 0) {
		pool.FullSeconds = new(int64(min(state.FullSeconds, math.MaxInt32)))
	}
	for _, problem := range state.Conditions {
		pool.Conditions = append(pool.Conditions, cmp.Or(problem.Message, problem.Reason))
	}
	return pool
}
