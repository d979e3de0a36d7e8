package cluster

import "time"

// SetServePoll shortens the poll for absent kinds.
func SetServePoll(s *Set, every time.Duration) { s.servePoll = every }

// Assumed returns how many of its own writes a store still keeps next to its objects.
func Assumed[T Object](s *Store[T]) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.assumed)
}
