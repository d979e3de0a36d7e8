package provision

import (
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"
)

// progress is what this process remembers of claims that have no volume yet.
// Nothing in it is needed to be right: it saves calls and repeated messages.
type progress struct {
	mu    sync.Mutex
	known map[types.UID]*step
	names map[string]types.UID // of volumes in progress, with the claim that has the name
}

// step is the memory of one claim.
type step struct {
	news  time.Time // when the watch last told of the claim
	asked time.Time // when it was first told of what the claim asks for
	// made is the driver's answer for which no PersistentVolume stands yet.
	made *csi.Volume
	// name is the volume's name that the claim has reserved.
	name string
	// untried is set while the record is this process's own and the driver was
	// not called yet: then a refusal is all there is to know.
	untried bool
	// refused is set while the API server has definitely refused every try of any
	// process to create the PersistentVolume of the intent.
	refused bool
	// done is set when the PersistentVolume stands and the cache has not yet
	// told so of the claim.
	done bool
	// slow and slowClass keep a claim from a class that the driver refused.
	slow      time.Time
	slowClass types.UID
	// away is until when this node leaves a claim with immediate binding to others.
	away time.Time
	// told and toldAt are the last message that is not worth repeating soon.
	told   string
	toldAt time.Time
}

// heard notes that the watch told of the claim, and whether it asks for
// something else than before.
func (s *step) heard(now time.Time, changed bool) {
	s.news = now
	if changed || s.asked.IsZero() {
		s.asked, s.slow = now, time.Time{}
	}
}

func newProgress() *progress {
	return &progress{known: map[types.UID]*step{}, names: map[string]types.UID{}}
}

// reserve gives a volume's name to a claim, unless another claim has it: the
// driver would find the one's volume for the other. It returns the owner.
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

// release gives up the name that a claim has reserved.
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

// of returns a copy of what is known.
func (p *progress) of(uid types.UID) step {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.known[uid]; known != nil {
		return *known
	}
	return step{}
}

// note changes what is known.
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

func (p *progress) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseLocked(uid)
	delete(p.known, uid)
}

// tellAgain is when a message is repeated: events are kept for an hour.
const tellAgain = 15 * time.Minute

// once tells whether a message is another one than the last, or that one is old.
func (p *progress) once(uid types.UID, message string) (fresh bool) {
	p.note(uid, func(s *step) {
		fresh = s.told != message || time.Since(s.toldAt) > tellAgain
		if fresh {
			s.told, s.toldAt = message, time.Now()
		}
	})
	return fresh
}
