package lease

import (
	"fmt"
	"sync"
	"time"
)

// grace is how long after the end of its lease a process may still work before it
// counts as stuck. It is that of the sidecars' /healthz/leader-election.
const grace = 20 * time.Second

// State is the state of a process's leader election, for its health page. The zero
// value is that of a process before Run.
type State struct {
	mu      sync.Mutex
	name    string // of the lease that the process waits for
	holder  string // of that lease, as last observed
	leading bool
	since   time.Time // when leading or waiting began
	// until is when work that still runs after a loss counts as stuck; zero without a loss.
	until time.Time
}

// Leading reports whether the work may run in this process.
func (s *State) Leading() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leading
}

// String describes the state for people.
func (s *State) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	age := time.Since(s.since).Round(time.Second)
	switch {
	case !s.until.IsZero():
		return fmt.Sprintf("lease %s is lost; the work in progress ends", s.name)
	case s.leading:
		return fmt.Sprintf("leading for %v", age)
	case s.name == "":
		return "not waiting for a lease yet"
	case s.holder == "":
		return fmt.Sprintf("standby for %v: waiting for lease %s", age, s.name)
	}
	return fmt.Sprintf("standby for %v: lease %s is held by %s", age, s.name, s.holder)
}

// Check fails if the work still runs although the lease was lost more than its
// duration and 20 s ago: then the process must be killed. The sidecars serve the
// same at /healthz/leader-election.
func (s *State) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if late := time.Since(s.until); !s.until.IsZero() && late > 0 {
		return fmt.Errorf("lease %s was lost, and the work that it guards still runs, %v after its deadline",
			s.name, late.Round(time.Second))
	}
	return nil
}

func (s *State) wait(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name, s.holder, s.since = name, "", time.Now()
}

func (s *State) see(name, holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.name == name {
		s.holder = holder
	}
}

func (s *State) lead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leading, s.since = true, time.Now()
}

func (s *State) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leading, s.since, s.until = false, time.Now(), time.Time{}
}

func (s *State) lose(name string, duration time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leading, s.name, s.until = false, name, time.Now().Add(duration+grace)
}
