package cluster

import "time"

// SetServePoll makes tests of absent kinds quick.
func SetServePoll(s *Set, every time.Duration) { s.servePoll = every }

// Assumed is how many own writes a store still keeps next to its objects.
func Assumed[T Object](s *Store[T]) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.assumed)
}
