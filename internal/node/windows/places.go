package windows

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// places are where this process has shown volumes, for a question that Windows
// does not answer: where else a volume is. What they tell is looked at before it
// is believed. The zero value is ready to use.
type places struct {
	mu sync.Mutex
	of map[string]map[string]string // by volume ID and folded path: the path
}

func (p *places) add(volumeID, path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]map[string]string{}
	}
	if p.of[volumeID] == nil {
		p.of[volumeID] = map[string]string{}
	}
	p.of[volumeID][foldPath(path)] = path
}

func (p *places) remove(volumeID, path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of[volumeID], foldPath(path))
	if len(p.of[volumeID]) == 0 {
		delete(p.of, volumeID)
	}
}

// others are the volume's places but for one.
func (p *places) others(volumeID, path string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := maps.Clone(p.of[volumeID])
	delete(known, foldPath(path))
	return slices.Sorted(maps.Values(known))
}

// elsewhere gives a place of the volume other than path, "" for none, and forgets
// those where it is no more.
func (e *Engine) elsewhere(ctx context.Context, known *places, volumeID, path string) (string, error) {
	for _, other := range known.others(volumeID, path) {
		there, err := e.at(ctx, volumeID, other, nil)
		if err != nil {
			return "", err
		}
		if there.ours {
			return other, nil
		}
		known.remove(volumeID, other)
	}
	return "", nil
}
