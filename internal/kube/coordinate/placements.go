package coordinate

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// defaultSkip is for how long a node that has removed its selection from a claim is not
// selected for it again.
const defaultSkip = time.Minute

// placement is a claim's selected node, as long as the claim has no volume. Its size is
// not in the capacity that the node reports.
type placement struct {
	node, key string
	bytes     int64
	written   bool // false while this process writes the selection
}

// placements are those of all pending claims. They follow from the claims; only skipped
// and lost are this process's memory. They are safe for concurrent use.
type placements struct {
	skipFor time.Duration

	mu      sync.Mutex
	claims  map[types.UID]placement
	bytes   map[string]int64 // by node
	byNode  map[string]map[types.UID]bool
	skipped map[types.UID]map[string]time.Time // until when, by node
	lost    map[types.UID]time.Time            // since when the selected node serves no claims
}

func newPlacements(skipFor time.Duration) *placements {
	return &placements{
		skipFor: skipFor,
		claims:  map[types.UID]placement{}, bytes: map[string]int64{}, byNode: map[string]map[types.UID]bool{},
		skipped: map[types.UID]map[string]time.Time{}, lost: map[types.UID]time.Time{},
	}
}

func (p *placements) put(claim types.UID, next placement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.putLocked(claim, next)
}

func (p *placements) putLocked(claim types.UID, next placement) {
	if p.claims[claim] == next {
		return
	}
	p.removeLocked(claim)
	p.claims[claim] = next
	p.bytes[next.node] += next.bytes
	if p.byNode[next.node] == nil {
		p.byNode[next.node] = map[types.UID]bool{}
	}
	p.byNode[next.node][claim] = true
}

func (p *placements) remove(claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeLocked(claim)
}

func (p *placements) removeLocked(claim types.UID) {
	old, found := p.claims[claim]
	if !found {
		return
	}
	delete(p.claims, claim)
	delete(p.lost, claim)
	delete(p.byNode[old.node], claim)
	if p.bytes[old.node] -= old.bytes; len(p.byNode[old.node]) == 0 {
		delete(p.bytes, old.node)
		delete(p.byNode, old.node)
	}
}

// forget removes everything about a claim that is gone.
func (p *placements) forget(claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeLocked(claim)
	delete(p.skipped, claim)
}

// wrote records that the claim names the node that was put for it.
func (p *placements) wrote(claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if placed, found := p.claims[claim]; found {
		placed.written = true
		p.putLocked(claim, placed)
	}
}

// deselected removes a claim from the node that the claim no longer names, and skips the
// node. The cache may show that before the change is handled. A selection that is being
// written stays.
func (p *placements) deselected(claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.claims[claim]; old.written {
		p.removeLocked(claim)
		p.skipLocked(claim, old.node)
	}
}

// skip keeps a node from being selected for a claim again soon.
func (p *placements) skip(claim types.UID, node string) {
	if node == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skipLocked(claim, node)
}

func (p *placements) skipLocked(claim types.UID, node string) {
	if p.skipped[claim] == nil {
		p.skipped[claim] = map[string]time.Time{}
	}
	p.skipped[claim][node] = time.Now().Add(p.skipFor)
}

// skips returns for how long a node is not selected for a claim.
func (p *placements) skips(claim types.UID, node string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.skipsLocked(claim, node)
}

func (p *placements) skipsLocked(claim types.UID, node string) time.Duration {
	until, found := p.skipped[claim][node]
	if !found {
		return 0
	}
	return max(time.Until(until), 0)
}

// lostFor returns for how long the selected node of a claim has served no claims, from
// the first call on. served ends that.
func (p *placements) lostFor(claim types.UID) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, found := p.lost[claim]
	if !found {
		since = time.Now()
		p.lost[claim] = since
	}
	return time.Since(since)
}

func (p *placements) served(claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lost, claim)
}

// on returns the keys of the claims that wait for a node.
func (p *placements) on(node string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var keys []string
	for claim := range maps.Keys(p.byNode[node]) {
		keys = append(keys, p.claims[claim].key)
	}
	slices.Sort(keys)
	return keys
}

// choose calls better for each pair of a candidate and the best one so far, and puts the
// claim on the best one at once, so that concurrent choices see it. It returns "" if no
// candidate may be selected, with the pause until one of them may be again.
func (p *placements) choose(
	claim types.UID, next placement, candidates []node, room func(node) (bytes int64, known bool), tie func(string) uint64,
) (chosen string, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := offer{bytes: -1}
	for _, one := range candidates {
		if wait := p.skipsLocked(claim, one.name); wait > 0 {
			if pause == 0 || wait < pause {
				pause = wait
			}
			continue
		}
		bytes, known := room(one)
		if known {
			if bytes -= p.bytes[one.name]; bytes < next.bytes {
				continue
			}
		} else {
			bytes = -p.bytes[one.name]
		}
		if here := (offer{one.name, known, bytes, tie(one.name)}); best.node == "" || here.better(best) {
			best = here
		}
	}
	if best.node != "" {
		next.node = best.node
		p.putLocked(claim, next)
	}
	return best.node, pause
}

// offer is a node's room for a claim, less that of pending claims.
type offer struct {
	node  string
	known bool // its process reports its capacity
	bytes int64
	tie   uint64
}

// better prefers a node whose room is known, then the one with more room. Among equal
// ones, a hash spreads the claims.
func (o offer) better(other offer) bool {
	switch {
	case o.known != other.known:
		return o.known
	case o.bytes != other.bytes:
		return o.bytes > other.bytes
	}
	return o.tie > other.tie
}
