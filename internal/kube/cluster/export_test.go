package cluster

import "time"

// SetServePoll makes tests of absent kinds quick.
func SetServePoll(s *Set, every time.Duration) { s.servePoll = every }
