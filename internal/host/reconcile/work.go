package reconcile

import "time"

// Work is a key that is not done: it is due or running, or it failed.
type Work struct {
	Key string
	// Due: it waits for room in its partition, or for another controller of the group.
	Due     bool
	Running bool
	// Began is when it became due for the first time since it last succeeded, Since when
	// the running call began.
	Began, Since time.Time
	// DueSince is when a key that is due became so: it has waited since then.
	DueSince  time.Time
	LastError error // of the last call
}

// Work calls report for each key that is not done. report must not call the queue.
func (q *Queue) Work(report func(Work)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, it := range q.items {
		if it.due || it.Running || it.LastError != nil {
			report(Work{
				Key: key, Due: it.due, Running: it.Running, Began: it.begun, Since: it.Since, DueSince: it.dueSince, LastError: it.LastError,
			})
		}
	}
}

// Added is the number of times that a key became due.
func (q *Queue) Added() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.added
}

// Queues returns the queues of all controllers, in their order.
func (s *Set) Queues() []*Queue { return s.order }
