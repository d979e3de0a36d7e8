package verify

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Resource is something that a check made.
type Resource struct {
	Kind string `json:"kind"` // volume, snapshot, directory, …
	ID   string `json:"id"`
	// Removed reports that it is gone again.
	Removed bool `json:"removed"`
	// Lasts reports that it stays by design, until someone removes it by hand.
	Lasts bool `json:"lasts,omitempty"`
	// Problem is why it could not be removed, or "".
	Problem string `json:"problem,omitempty"`
	// By is the command that removes it by hand.
	By string `json:"by"`
}

// Ledger records what checks make, so that it can be removed. It lives in memory: the
// resources carry a mark of their own (a tag, a directory's name) by which a later process
// finds those of a process that was killed.
type Ledger struct {
	// Announce is called for each resource right after it was made; may be nil.
	Announce func(Resource)

	mu      sync.Mutex
	entries []entry
}

type entry struct {
	Resource
	remove func(context.Context) error
}

// Add records a resource. by is the command that removes it by hand.
func (l *Ledger) Add(kind, id, by string, remove func(context.Context) error) {
	made := Resource{Kind: kind, ID: id, By: by, Lasts: remove == nil}
	l.mu.Lock()
	l.entries = append(l.entries, entry{made, remove})
	l.mu.Unlock()
	if l.Announce != nil {
		l.Announce(made)
	}
}

// AddLasting records something that CleanUp cannot remove, and the command with which an
// administrator does.
func (l *Ledger) AddLasting(kind, id, by string) {
	l.Add(kind, id, by, nil)
}

// Removed records that a check removed a resource itself.
func (l *Ledger) Removed(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.entries {
		if l.entries[i].ID == id {
			l.entries[i].Removed = true
		}
	}
}

// CleanUp removes what is left, the youngest first. The error names the resources that
// stay, and how they are removed by hand.
func (l *Ledger) CleanUp(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := ""
	for i := range slices.Backward(l.entries) {
		e := &l.entries[i]
		if e.Removed || e.remove == nil {
			continue
		}
		if err := e.remove(ctx); err != nil {
			e.Problem = Redact(err.Error())
			left += fmt.Sprintf("\n  %s %s: %s; remove it with: %s", e.Kind, e.ID, e.Problem, e.By)
			continue
		}
		e.Removed, e.Problem = true, ""
	}
	if left != "" {
		return fmt.Errorf("these resources stay:%s", left)
	}
	return nil
}

// Resources are all that were recorded.
func (l *Ledger) Resources() []Resource {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Resource, len(l.entries))
	for i, e := range l.entries {
		all[i] = e.Resource
	}
	return all
}
