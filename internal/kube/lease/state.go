package lease

import (
	"fmt"
	"sync"
	"time"
)

// grace is how long after its lease's end a process may still work before it
// counts as stuck; that of the sidecars' /healthz/leader-election.
const grace = 20 * time.Second

// State is what a process's lease is about, for its health page. The zero
// value is that of a process that has not asked for one.
type State struct {
	mu      sync.Mutex
	name    string // of the lease that is waited for
	holder  string // of that lease, as far as known
	leading bool
	since   time.Time // of leading, or of waiting
	// until is when work that goes on after a loss is stuck; zero without a loss.
	until time.Time
}

// Leading tells whether the work may run here.
func (s *State) Leading() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leading
}

// Words say what the lease is about, for people.
func (s *State) Words() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	age := time.Since(s.since).Round(time.Second)
	switch {
	case !s.until.IsZero():
		return fmt.Sprintf("lease %s is lost; the work in progress ends", s.name)
	case s.leading:
		return fmt.Sprintf("leading for %v", age)
	case s.name == "":
		return "no lease was asked for yet"
	case s.holder == "":
		return fmt.Sprintf("standby for %v: waiting for lease %s", age, s.name)
	}
	return fmt.Sprintf("standby for %v: lease %s is held by %s", age, s.name, s.holder)
}

// Check fails when the process works on although its lease ended more than its
// duration and 20 s ago: then it must be killed. It is what the sidecars serve
// at /healthz/leader-election.
func (s *State) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if late := time.Since(s.until); !s.until.IsZero() && late > 0 {
		return fmt.Errorf("lease %s was lost, and the work that it guards has not ended since; it is %v late", s.name, late.Round(time.Second))
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
