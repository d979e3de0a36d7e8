package host

import (
	"log/slog"
	"slices"
	"sync"
)

// storage is the state that the groups about disks, volumes, shares and services
// share.
type storage struct {
	records *records
	rescans *freshCall
	proofs  *proofs
	numbers numbers
	formats counts
}

func newStorage(options Options, logger *slog.Logger) (*storage, error) {
	records, err := newRecords(options.StateDir, logger)
	if err != nil {
		return nil, err
	}
	return &storage{records: records, rescans: &freshCall{logger: logger}, proofs: newProofs()}, nil
}

// numbers are the disk numbers that disk interfaces had when they last answered.
// They serve only to list a disk that does not answer now.
type numbers struct{ byPath sync.Map }

func (n *numbers) learn(path string, number uint32) { n.byPath.Store(path, number) }

func (n *numbers) of(path string) (uint32, bool) {
	value, _ := n.byPath.Load(path)
	number, known := value.(uint32)
	return number, known
}

// keep forgets the interfaces that no longer exist.
func (n *numbers) keep(paths []string) {
	n.byPath.Range(func(path, _ any) bool {
		if !slices.ContainsFunc(paths, func(p string) bool { return p == path }) {
			n.byPath.Delete(path)
		}
		return true
	})
}

// counts are how many formats of each volume this process has finished. A call that
// waited for another format learns from them that it happened.
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
