package nodestats

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// pause is how long a volume is not asked after a failure. Not every disk has these
// statistics, and the kernel may log each refusal.
const pause = time.Minute

// state is the state of a volume; guarded by Collector.mu.
type state struct {
	running bool      // it is being asked, and has not answered
	next    time.Time // when it may be asked after a failure
	logged  bool      // its failure was logged
}

// begin returns those of the volumes that can be asked, and marks them as running. It
// removes the state of other volumes.
func (c *Collector) begin(ids []string) []string {
	hung := 0
	c.mu.Lock()
	for id, s := range c.volumes {
		if !s.running && !slices.Contains(ids, id) {
			delete(c.volumes, id)
		}
	}
	now := time.Now()
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		s := c.stateOf(id)
		if s.running {
			hung++
		}
		return s.running || now.Before(s.next)
	})
	for _, id := range ids {
		c.volumes[id].running = true
	}
	c.mu.Unlock()
	c.self.errors.Add(float64(hung))
	return ids
}

// stateOf finds or makes the state of a volume; c.mu is held.
func (c *Collector) stateOf(id string) *state {
	s := c.volumes[id]
	if s == nil {
		s = &state{}
		c.volumes[id] = s
	}
	return s
}

// end records that a volume has answered.
func (c *Collector) end(id string, err error) {
	c.mu.Lock()
	s := c.stateOf(id)
	s.running = false
	gone := errors.Is(err, backend.ErrNotFound)
	if err != nil && !gone {
		s.next = time.Now().Add(pause)
	}
	c.mu.Unlock()
	if !gone {
		c.note(id, err)
	}
}

// abandon records that a volume was not asked.
func (c *Collector) abandon(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stateOf(id).running = false
}

// note counts a failure, and logs the first since the volume last answered.
func (c *Collector) note(id string, err error) {
	c.mu.Lock()
	first := c.stateOf(id).fails(err != nil)
	c.mu.Unlock()
	if err == nil {
		return
	}
	c.self.errors.Inc()
	if first {
		c.options.Logger.Warn("the metrics lack the statistics of a volume", "volume", id, "error", err)
	}
}

// noteWhole is note for the search for the volumes.
func (c *Collector) noteWhole(err error) {
	c.mu.Lock()
	first := c.whole.fails(err != nil)
	c.mu.Unlock()
	if err == nil {
		return
	}
	c.self.errors.Inc()
	if first {
		c.options.Logger.Warn("the metrics lack the statistics of all volumes", "error", err)
	}
}

// fails records whether an attempt failed, and reports whether that is the first failure.
func (s *state) fails(now bool) bool {
	first := now && !s.logged
	s.logged = now
	return first
}
