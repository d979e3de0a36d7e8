package status

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// Pool is where a driver has its volumes. Sizes are in bytes.
type Pool struct {
	Driver, Name string
	// Size is 0 if the pool cannot be read.
	Size, Available int64
	// Promised is the sum of the sizes of the volumes.
	Promised int64
	// Use says what uses the pool, most first.
	Use string
	// Full is when it is full if it goes on growing; 0 if it does not, or if that is not
	// known.
	Full time.Duration
	// Problems are sentences.
	Problems string
	// Classes are given for a pool of a cluster, of which only Available is known: that is
	// the room for volumes of these classes.
	Classes string
}

// Used is the part of the pool that is not available, from 0 to 1. It is 0 if the size
// is not known.
func (p Pool) Used() float64 {
	if p.Size <= 0 {
		return 0
	}
	return max(0, min(1, float64(p.Size-p.Available)/float64(p.Size)))
}

// The parts of a pool from which on it is nearly full, and full for most purposes.
const (
	nearlyFull = 0.85
	full       = 0.95
)

// Level is bad for a pool with problems, or without room.
func (p Pool) Level() Level {
	switch used := p.Used(); {
	case p.Classes != "" && p.Available > 0:
		return Good
	case p.Problems != "" || p.Size == 0 || used >= full:
		return Bad
	case used >= nearlyFull:
		return Busy
	}
	return Good
}

func poolsOfHost(known []api.Pool) []Pool {
	var pools []Pool
	for _, pool := range known {
		one := Pool{
			Driver: pool.Driver, Name: pool.Name, Size: pool.Size, Available: pool.Available, Promised: pool.Promised,
			Use: useText(pool.Used), Problems: strings.Join(pool.Conditions, "; "),
		}
		if pool.FullSeconds != nil {
			one.Full = time.Duration(*pool.FullSeconds) * time.Second
		}
		pools = append(pools, one)
	}
	return pools
}

// useText names what uses a pool, most first.
func useText(used map[string]int64) string {
	words := map[string]string{"partial": "copies that are not complete", "other": "other files"}
	kinds := slices.SortedFunc(maps.Keys(used), func(a, b string) int {
		return cmp.Or(cmp.Compare(used[b], used[a]), strings.Compare(a, b))
	})
	var texts []string
	for _, kind := range kinds {
		if used[kind] > 0 {
			texts = append(texts, progress.Size(used[kind])+" "+cmp.Or(words[kind], kind))
		}
	}
	return strings.Join(texts, ", ")
}
