package batch

import (
	"sync"
	"time"
)

// Bursts of calls: those that follow one another within burstGap are one burst;
// company is evident where one of burstSize was among the last two and is not
// older than burstMemory.
const (
	burstGap    = 10 * time.Millisecond
	burstSize   = 4
	burstMemory = 30 * time.Second
)

// Crowd notices whether calls come in company, by how the last ones came. The
// zero value is ready for use.
type Crowd struct {
	mu      sync.Mutex
	last    time.Time // when the last call came
	size    int       // of the burst it belongs to
	before  [2]int    // sizes of the bursts before it, the latest first
	crowded time.Time // when the last call of a large burst came
}

// Arrive tells of a call.
func (c *Crowd) Arrive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.last) > burstGap {
		c.before = [2]int{c.size, c.before[0]}
		c.size = 0
	}
	c.last = now
	c.size++
	if c.size >= burstSize {
		c.crowded = now
	}
}

// Evident tells whether the call that has just come is likely to have company.
func (c *Crowd) Evident() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.Sub(c.crowded) > burstMemory {
		return false
	}
	return max(c.size, c.before[0], c.before[1]) >= burstSize
}
