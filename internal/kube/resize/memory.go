package resize

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// memory is this process's knowledge of a claim beyond its objects. The zero
// value is that of a new process, which must assume that any operation in progress
// may still be running.
type memory struct {
	expand, modify lifecycle.History
	// expandUnable and modifyUnable are the size and the class for which an event
	// has said that the driver lacks the capability.
	expandUnable, modifyUnable string
}

// memories are kept by the claims' UIDs: a new claim under an old name
// must not inherit the memory of the old one.
type memories struct {
	mu    sync.Mutex
	known map[types.UID]memory
}

func (m *memories) of(uid types.UID) memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[uid]
}

// change deletes an entry that became empty.
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

// forgetGone deletes the memory of a claim that was deleted meanwhile.
func (c *Controller) forgetGone(key string, uid types.UID) {
	if pvc, found := c.claims.Get(key); !found || pvc.UID != uid {
		c.memories.drop(uid)
	}
}
