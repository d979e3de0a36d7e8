package ec2emu

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// dice draw times from a seed, for concurrent callers.
type dice struct {
	mu     sync.Mutex
	random *rand.Rand
}

// newDice draws from the stream of a seed, so that a run can be repeated.
func newDice(seed, stream uint64) *dice {
	return &dice{random: rand.New(rand.NewPCG(seed, stream))} //nolint:gosec // it must repeat, not be secret
}

func (d *dice) draw(t world.Takes) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.Draw(d.random)
}

// chance is true in a share p of all cases.
func (d *dice) chance(p float64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.Float64() < p
}
