package kube

import (
	"context"
	"sync"
	"time"
)

// sight is what a process cannot see of the API server.
type sight struct {
	// stall is how long, at most, a watch is behind: the world is slow, not broken.
	stall time.Duration

	mu sync.Mutex
	// behind are the resources whose watch delivers nothing, with a channel that is closed
	// when it does again.
	behind map[string]chan struct{}
	// cut is set while no request of the process arrives, and cutLease while none about the
	// Lease does.
	cut, cutLease bool
}

// toggleBehind lets the watch of a resource fall behind, or catch up.
func (s *sight) toggleBehind(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if behind := s.behind[resource]; behind != nil {
		close(behind)
		delete(s.behind, resource)
		return
	}
	if s.behind == nil {
		s.behind = map[string]chan struct{}{}
	}
	s.behind[resource] = make(chan struct{})
}

// toggleCut cuts the process off, from the Lease alone or from everything, or connects it again.
func (s *sight) toggleCut(leaseAlone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut || s.cutLease {
		s.cut, s.cutLease = false, false
		return
	}
	s.cut, s.cutLease = !leaseAlone, true
}

// isCut reports whether requests about a resource do not arrive.
func (s *sight) isCut(resource string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut || s.cutLease && resource == leases
}

// restore lets the process see everything again.
func (s *sight) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, behind := range s.behind {
		close(behind)
	}
	s.behind, s.cut, s.cutLease = nil, false, false
}

// await waits while the watch of a resource is behind. It returns false if the watch ends.
func (s *sight) await(ctx context.Context, resource string) bool {
	s.mu.Lock()
	behind := s.behind[resource]
	s.mu.Unlock()
	if behind == nil {
		return true
	}
	timer := time.NewTimer(s.stall)
	defer timer.Stop()
	select {
	case <-behind:
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	return true
}
