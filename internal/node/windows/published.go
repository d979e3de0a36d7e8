package windows

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// publishedPaths are the target paths that this process has published, since Windows
// does not list the links to a volume. Each is inspected before it is used. The zero
// value is ready to use.
type publishedPaths struct {
	mu sync.Mutex
	of map[string]map[string]string // by volume ID and folded path: the path
}

func (p *publishedPaths) add(volumeID, path string) {
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

func (p *publishedPaths) remove(volumeID, path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of[volumeID], foldPath(path))
	if len(p.of[volumeID]) == 0 {
		delete(p.of, volumeID)
	}
}

// others returns the volume's paths except one.
func (p *publishedPaths) others(volumeID, path string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := maps.Clone(p.of[volumeID])
	delete(known, foldPath(path))
	return slices.Sorted(maps.Values(known))
}

// elsewhere returns a path of the volume other than the given one, "" for none. It
// forgets paths that no longer lead to the volume.
func (e *Engine) elsewhere(ctx context.Context, known *publishedPaths, volumeID, path string) (string, error) {
	for _, other := range known.others(volumeID, path) {
		there, err := e.at(ctx, volumeID, other, nil)
		if err != nil {
			return "", err
		}
		if there.matches {
			return other, nil
		}
		known.remove(volumeID, other)
	}
	return "", nil
}
