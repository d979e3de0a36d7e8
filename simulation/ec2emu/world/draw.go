package world

import (
	"math/rand/v2"
	"time"
)

// Draw is one time of the distribution.
func (t Takes) Draw(random *rand.Rand) time.Duration { return t.pick(random) }
