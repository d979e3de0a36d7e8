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
	firstBackoff   = time.Second
	longestBackoff = 5 * time.Minute
)

// backoffs delays repeats of a creation that failed, to spare EC2 calls that would
// fail again. A restart forgets them, which is safe.
type backoffs struct {
	mu    sync.Mutex
	names map[string]backoff
}

type backoff struct {
	reason error
	delay  time.Duration
	until  time.Time
}

// check is ErrUnavailable, with the reason, while repeats for a name back off.
func (s *backoffs) check(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.names[name]
	if left := time.Until(last.until); ok && left > 0 {
		return fmt.Errorf("%w: the next attempt is in %s, as the last one failed: %w", backend.ErrUnavailable, left.Round(time.Second), last.reason)
	}
	return nil
}

func (s *backoffs) note(name string, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.names, func(_ string, b backoff) bool { return now.Sub(b.until) > longestBackoff })
	if s.names == nil {
		s.names = map[string]backoff{}
	}
	delay := min(max(2*s.names[name].delay, firstBackoff), longestBackoff)
	s.names[name] = backoff{reason: reason, delay: delay, until: now.Add(delay)}
}

// last returns why the last attempt of a name failed; nil when that is not known.
func (s *backoffs) last(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name].reason
}

func (s *backoffs) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.names, name)
}
