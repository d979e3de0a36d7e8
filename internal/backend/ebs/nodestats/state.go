package nodestats

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// silence is how long a volume that failed is left alone: not every disk has
// these statistics, and the kernel may log each refusal.
const silence = time.Minute

// state is what is known of a volume; guarded by Collector.mu.
type state struct {
	running bool      // it is being asked, and has not answered
	again   time.Time // when it may be asked after a failure
	logged  bool      // its failure was logged
}

// begin returns those volumes of ids that can be asked, and takes them to be
// asked. Volumes that are gone are forgotten.
func (c *Collector) begin(ids []string) []string {
	var silent []string
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
			silent = append(silent, id)
		}
		return s.running || now.Before(s.again)
	})
	for _, id := range ids {
		c.volumes[id].running = true
	}
	c.mu.Unlock()
	for range silent { // their state says why, and so does the log
		c.self.errors.Inc()
	}
	return ids
}

// stateOf finds or makes a volume's; c.mu is held.
func (c *Collector) stateOf(id string) *state {
	s := c.volumes[id]
	if s == nil {
		s = &state{}
		c.volumes[id] = s
	}
	return s
}

// end takes a volume's answer.
func (c *Collector) end(id string, err error) {
	c.mu.Lock()
	s := c.stateOf(id)
	s.running = false
	gone := errors.Is(err, backend.ErrNotFound)
	if err != nil && !gone {
		s.again = time.Now().Add(silence)
	}
	c.mu.Unlock()
	if !gone {
		c.note(id, err)
	}
}

// abandon is for a volume that was not asked after all.
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
		c.options.Logger.Warn("the statistics of a volume are left out", "volume", id, "error", err)
	}
}

// noteWhole is note for what all volumes need.
func (c *Collector) noteWhole(err error) {
	c.mu.Lock()
	first := c.whole.fails(err != nil)
	c.mu.Unlock()
	if err == nil {
		return
	}
	c.self.errors.Inc()
	if first {
		c.options.Logger.Warn("the statistics of volumes are left out", "error", err)
	}
}

// fails notes whether something fails, and reports whether that is new.
func (s *state) fails(now bool) bool {
	first := now && !s.logged
	s.logged = now
	return first
}
