package concurrency

import (
	"sync"
	"time"
)

// Calls that follow one another within burstGap are one burst. A detector is
// active while a burst of burstSize is among the last two and not older than
// burstMemory.
const (
	burstGap    = 10 * time.Millisecond
	burstSize   = 4
	burstMemory = 30 * time.Second
)

// BurstDetector expects bursts of calls from how the last calls arrived. The zero
// value is ready to use.
type BurstDetector struct {
	mu     sync.Mutex
	last   time.Time // when the last call arrived
	size   int       // of the burst it belongs to
	before [2]int    // sizes of the bursts before it, the latest first
	large  time.Time // when the last call of a large burst arrived
}

// Add notes a call.
func (b *BurstDetector) Add() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Sub(b.last) > burstGap {
		b.before = [2]int{b.size, b.before[0]}
		b.size = 0
	}
	b.last = now
	b.size++
	if b.size >= burstSize {
		b.large = now
	}
}

// Active reports whether others are likely to follow the last call.
func (b *BurstDetector) Active() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last.Sub(b.large) > burstMemory {
		return false
	}
	return max(b.size, b.before[0], b.before[1]) >= burstSize
}
