package provision

import (
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"
)

// progress is this process's memory of claims that have no volume yet.
// Correctness does not depend on it: it saves calls and repeated messages.
type progress struct {
	mu    sync.Mutex
	known map[types.UID]*step
	names map[string]types.UID // of volumes in progress, with the claim that has the name
}

// step is the memory of one claim.
type step struct {
	updated time.Time // when the watch last reported the claim
	asked   time.Time // when the watch first reported the claim's present request
	// made is the driver's answer for which no PersistentVolume exists yet.
	made *csi.Volume
	// name is the volume's name that the claim has reserved.
	name string
	// untried is set while the intent is this process's own and the driver was
	// not called yet: then a rejection proves that the volume does not exist.
	untried bool
	// refused is set while the API server has definitely refused every try of any
	// process to create the PersistentVolume of the intent.
	refused bool
	// saving is set once this process may have tried to create a PersistentVolume of the claim.
	saving bool
	// saved is the version of the PersistentVolume that was created or found, and is the claim's
	// until the claim is bound or that PersistentVolume is gone.
	saved string
	// unbound is the trace of a claim whose PersistentVolume is saved, without its end.
	unbound unboundTrace
	// slow and slowClass delay a claim whose class the driver rejected.
	slow      time.Time
	slowClass types.UID
	// Until skipUntil this node leaves a claim without a selected node to other nodes.
	skipUntil time.Time
	// reported and reportedAt are the last event, which is repeated rarely.
	reported   string
	reportedAt time.Time
}

// update notes that the watch has reported the claim; changed reports whether the claim
// requests something else than before.
func (s *step) update(now time.Time, changed bool) {
	s.updated = now
	if changed || s.asked.IsZero() {
		s.asked, s.slow = now, time.Time{}
	}
}

func newProgress() *progress {
	return &progress{known: map[types.UID]*step{}, names: map[string]types.UID{}}
}

// reserve reserves a volume's name for a claim, unless another claim has it: for the
// second claim the driver would return the volume of the first. It returns the owner.
func (p *progress) reserve(uid types.UID, name string) (owner types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if owner, taken := p.names[name]; taken {
		return owner
	}
	if p.known[uid] == nil {
		p.known[uid] = &step{}
	}
	p.known[uid].name, p.names[name] = name, uid
	return uid
}

// release releases the name that a claim has reserved.
func (p *progress) release(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseLocked(uid)
}

func (p *progress) releaseLocked(uid types.UID) {
	known := p.known[uid]
	if known != nil && p.names[known.name] == uid {
		delete(p.names, known.name)
		known.name = ""
	}
}

// of returns a copy of a claim's step.
func (p *progress) of(uid types.UID) step {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.known[uid]; known != nil {
		return *known
	}
	return step{}
}

// note changes a claim's step.
func (p *progress) note(uid types.UID, change func(*step)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.known[uid]
	if known == nil {
		known = &step{}
		p.known[uid] = known
	}
	change(known)
}

// takeUnbound returns the trace of a claim whose PersistentVolume is saved, to the first caller.
func (p *progress) takeUnbound(uid types.UID) (taken unboundTrace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.known[uid]; known != nil {
		taken, known.unbound = known.unbound, unboundTrace{}
	}
	return taken
}

func (p *progress) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseLocked(uid)
	delete(p.known, uid)
}

// eventRepeat is when a message is repeated: events are kept for an hour.
const eventRepeat = 15 * time.Minute

// shouldReport reports whether a message differs from the last one, or that one is old.
func (p *progress) shouldReport(uid types.UID, message string) (fresh bool) {
	p.note(uid, func(s *step) {
		fresh = s.reported != message || time.Since(s.reportedAt) > eventRepeat
		if fresh {
			s.reported, s.reportedAt = message, time.Now()
		}
	})
	return fresh
}
