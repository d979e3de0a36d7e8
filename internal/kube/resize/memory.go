package resize

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memory is what this process knows of a claim beyond its objects. The zero
// value is what a fresh process knows: nothing, so that whatever is in progress
// may still be running.
type memory struct {
	// resizeFailed: the driver's last answer to an expansion was final.
	resizeFailed bool
	// refused is when the driver last said that the volume is in use.
	refused time.Time
	// modifySettled: the driver's last answer to a modification was final.
	modifySettled          bool
	resizeSlow, modifySlow slow
	// resizeUnable and modifyUnable are the wishes of which the user was told
	// that the driver cannot do such a thing.
	resizeUnable, modifyUnable string
}

// slow is a wish that the driver called infeasible, and until when it is left
// alone with it.
type slow struct {
	wish  string
	until time.Time
}

// rest is how long a wish has to wait; zero if it has not.
func (s slow) rest(wish string, now time.Time) time.Duration {
	if s.wish != wish {
		return 0
	}
	return max(0, s.until.Sub(now))
}

// memories are kept by the claims' UIDs: a claim made anew under an old name
// has nothing to do with the old one.
type memories struct {
	mu    sync.Mutex
	known map[types.UID]memory
}

func (m *memories) of(uid types.UID) memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[uid]
}

// change keeps nothing where there is nothing to remember.
func (m *memories) change(uid types.UID, f func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.known[uid]
	f(&one)
	if one == (memory{}) {
		delete(m.known, uid)
		return
	}
	if m.known == nil {
		m.known = map[types.UID]memory{}
	}
	m.known[uid] = one
}

func (m *memories) drop(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, uid)
}

func (m *memories) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.known)
}

// forgetGone drops what a worker remembered of a claim that went meanwhile.
func (c *Controller) forgetGone(key string, uid types.UID) {
	if pvc, found := c.claims.Get(key); !found || pvc.UID != uid {
		c.memories.drop(uid)
	}
}
