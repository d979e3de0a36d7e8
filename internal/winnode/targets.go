package winnode

import (
	"maps"
	"slices"
	"sync"
)

// targets are where this process has published volumes, for a question that
// Windows does not answer. The zero value is ready to use.
type targets struct {
	mu sync.Mutex
	of map[string]map[string]string // by volume ID and folded path: the path
}

func (t *targets) add(volumeID, path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]map[string]string{}
	}
	if t.of[volumeID] == nil {
		t.of[volumeID] = map[string]string{}
	}
	t.of[volumeID][foldPath(path)] = path
}

func (t *targets) remove(volumeID, path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of[volumeID], foldPath(path))
	if len(t.of[volumeID]) == 0 {
		delete(t.of, volumeID)
	}
}

// others are the volume's targets but for one.
func (t *targets) others(volumeID, path string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := maps.Clone(t.of[volumeID])
	delete(known, foldPath(path))
	return slices.Sorted(maps.Values(known))
}
