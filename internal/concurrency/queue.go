package concurrency

import (
	"context"
	"fmt"
	"sync"
)

// Queue is a set of locks by key whose later callers wait, in the order of arrival,
// for callers that would only repeat the request. The zero value is ready to use.
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
// be called once. The error is the cause of the context's end, if that comes first.
func (q *Queue) Lock(ctx context.Context, key string) (unlock func(), err error) {
	return q.Enter(ctx, key, 1)
}

// Enter is Lock for a key that up to limit callers may have at the same time. All
// callers of a key give the same limit.
func (q *Queue) Enter(ctx context.Context, key string, limit int) (leave func(), err error) {
	mine := q.join(key, limit)
	select {
	case mine.locked <- struct{}{}:
		return func() { <-mine.locked; q.leave(key, mine) }, nil
	case <-ctx.Done():
		q.leave(key, mine)
		return nil, fmt.Errorf("wait for %s: %w", key, context.Cause(ctx))
	}
}

func (q *Queue) join(key string, limit int) *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tickets == nil {
		q.tickets = map[string]*ticket{}
	}
	mine := q.tickets[key]
	if mine == nil {
		mine = &ticket{locked: make(chan struct{}, limit)}
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
