package ebs

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Repeats of a creation that failed after EC2 had accepted it wait this long,
// twice as long each time.
const (
	firstSetback = time.Second
	longSetback  = 5 * time.Minute
)

// setbacks keeps repeats from making EC2 fail again and again. It is a courtesy
// to EC2: losing it with the process loses nothing else.
type setbacks struct {
	mu    sync.Mutex
	names map[string]setback
}

type setback struct {
	reason error
	delay  time.Duration
	until  time.Time
}

// check is ErrUnavailable, with the reason, while a name has to wait.
func (s *setbacks) check(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.names[name]
	if left := time.Until(last.until); ok && left > 0 {
		return fmt.Errorf("%w: the next attempt is in %s, as the last one failed: %w", backend.ErrUnavailable, left.Round(time.Second), last.reason)
	}
	return nil
}

func (s *setbacks) note(name string, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.names, func(_ string, b setback) bool { return now.Sub(b.until) > longSetback })
	if s.names == nil {
		s.names = map[string]setback{}
	}
	delay := min(max(2*s.names[name].delay, firstSetback), longSetback)
	s.names[name] = setback{reason: reason, delay: delay, until: now.Add(delay)}
}

// last returns why the last attempt of a name failed; nil when that is not known.
func (s *setbacks) last(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name].reason
}

func (s *setbacks) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.names, name)
}
