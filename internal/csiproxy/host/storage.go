package host

import (
	"log/slog"
	"slices"
	"sync"
)

// storage is what the groups about disks, volumes, shares and services share.
type storage struct {
	records *records
	rescans once
	proofs  *proofs
	numbers numbers
	formats counts
}

func newStorage(options Options, logger *slog.Logger) (*storage, error) {
	records, err := newRecords(options.StateDir, logger)
	if err != nil {
		return nil, err
	}
	return &storage{records: records, proofs: newProofs()}, nil
}

// numbers are those that disk interfaces had when they last answered: only to
// list a disk that does not answer now.
type numbers struct {
	mu     sync.Mutex
	byPath map[string]uint32
}

func (n *numbers) learn(path string, number uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byPath == nil {
		n.byPath = map[string]uint32{}
	}
	n.byPath[path] = number
}

func (n *numbers) of(path string) (uint32, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	number, known := n.byPath[path]
	return number, known
}

// keep forgets the interfaces that no longer exist.
func (n *numbers) keep(paths []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for path := range n.byPath {
		if !slices.Contains(paths, path) {
			delete(n.byPath, path)
		}
	}
}

// counts are how many formats of each volume this process has finished: who
// waited for one learns by them that it happened meanwhile.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) now(volume string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[volume]
}

func (c *counts) add(volume string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[volume]++
}
