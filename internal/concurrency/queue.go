package concurrency

import (
	"context"
	"fmt"
	"sync"
)

// Queue is a set of locks by key whose second caller waits for the first, for
// callers that would only repeat the request. The zero value is ready to use.
type Queue struct {
	mu      sync.Mutex
	tickets map[string]*ticket
}

// ticket is the lock of a key, while a caller has it or waits for it.
type ticket struct {
	locked  chan struct{}
	callers int
}

// Lock waits until the key is unlocked. The returned function unlocks it and may
// be called once. The error is the context's, if that ends first.
func (q *Queue) Lock(ctx context.Context, key string) (unlock func(), err error) {
	mine := q.join(key)
	select {
	case mine.locked <- struct{}{}:
		return func() { <-mine.locked; q.leave(key, mine) }, nil
	case <-ctx.Done():
		q.leave(key, mine)
		return nil, fmt.Errorf("wait for %s: %w", key, ctx.Err())
	}
}

func (q *Queue) join(key string) *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tickets == nil {
		q.tickets = map[string]*ticket{}
	}
	mine := q.tickets[key]
	if mine == nil {
		mine = &ticket{locked: make(chan struct{}, 1)}
		q.tickets[key] = mine
	}
	mine.callers++
	return mine
}

func (q *Queue) leave(key string, mine *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if mine.callers--; mine.callers == 0 {
		delete(q.tickets, key)
	}
}
