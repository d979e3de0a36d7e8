package ebs

import (
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// seenLasts is how old a description may be to save another.
const seenLasts = time.Second

// seen keeps what was described a moment ago. Who changes a volume looked at it
// just before (package guard does), and needs not ask EC2 again.
type seen struct {
	mu      sync.Mutex
	volumes map[string]sighting
	swept   time.Time
}

type sighting struct {
	volume cloud.Volume
	until  time.Time
}

// put keeps a description.
func (s *seen) put(v cloud.Volume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.volumes == nil {
		s.volumes = map[string]sighting{}
	}
	if now.Sub(s.swept) >= seenLasts {
		s.swept = now
		for id, one := range s.volumes {
			if !now.Before(one.until) {
				delete(s.volumes, id)
			}
		}
	}
	s.volumes[v.ID] = sighting{v, now.Add(seenLasts)}
}

// take gives a description away; nil when there is none that is new enough.
func (s *seen) take(id string) *cloud.Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, is := s.volumes[id]
	delete(s.volumes, id)
	if !is || !time.Now().Before(one.until) {
		return nil
	}
	return &one.volume
}
