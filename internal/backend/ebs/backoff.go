package ebs

import (
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// How long repeats of a creation wait that failed after EC2 had accepted it. The wait
// doubles each time.
const (
	firstBackoff   = time.Second
	longestBackoff = 5 * time.Minute
)

// backoffs delays repeats of a creation that failed, to spare EC2 calls that would
// fail again. A restart loses them, which is safe.
type backoffs struct {
	names concurrency.Expiring[string, backoff]
}

type backoff struct {
	reason error
	delay  time.Duration
	until  time.Time
}

// check is ErrUnavailable, with the reason, while repeats for a name back off.
func (s *backoffs) check(name string) error {
	last, ok := s.names.Get(name)
	if wait := time.Until(last.until); ok && wait > 0 {
		return fmt.Errorf("%w: the next attempt is in %s, as the last one failed: %w",
			backend.ErrUnavailable, wait.Round(time.Second), last.reason)
	}
	return nil
}

func (s *backoffs) note(name string, reason error) {
	last, _ := s.names.Get(name)
	delay := min(max(2*last.delay, firstBackoff), longestBackoff)
	s.names.Set(name, backoff{reason: reason, delay: delay, until: time.Now().Add(delay)}, delay+longestBackoff)
}

// last returns the error of the last attempt of a name; nil if it is unknown.
func (s *backoffs) last(name string) error {
	last, _ := s.names.Get(name)
	return last.reason
}

func (s *backoffs) forget(name string) { s.names.Delete(name) }
