package apiserver

// history is what etcd keeps: every change since the last compaction.
type history struct {
	compacted uint64
	changes   []past
}

type past struct {
	version    uint64
	collection string
	event      string
	old, now   object
}

func (h *history) add(collection, event string, old, now object, version uint64) {
	h.changes = append(h.changes, past{version: version, collection: collection, event: event, old: old, now: now})
}

// at returns the object of a request as it was at a version; ok is false if there was none.
func (h *history) at(q Request, version uint64) (found object, ok bool) {
	for _, change := range h.changes {
		if change.version > version {
			break
		}
		if change.collection == q.collection() && change.now.name() == q.Name && change.now.namespace() == q.Namespace {
			found, ok = change.now, change.event != "DELETED"
		}
	}
	return found, ok
}

// replay sends a watcher the changes since its version. It is false if they were compacted.
// The caller holds the lock.
func (s *Server) replay(own *watcher) bool {
	if own.request.since < s.history.compacted {
		return false
	}
	for _, change := range s.history.changes {
		if change.version > own.request.since && change.collection == own.request.collection() {
			own.add(change.event, change.old, change.now)
		}
	}
	s.watches[own.request.collection()] = append(s.watches[own.request.collection()], own)
	return true
}

// Compact forgets the changes before now: a watch that begins at an older version is
// refused.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.compacted = s.version
}
