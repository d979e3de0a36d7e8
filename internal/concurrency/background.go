package concurrency

import (
	"context"
	"sync"
	"time"
)

// Background asks a question that may take long, or for ever, in the background, and
// keeps its last answer. One question runs at a time. Nothing runs unless Get is called.
type Background[T any] struct {
	// Ask may hang: only the callers of Get that wait for a first answer notice.
	Ask func(ctx context.Context) T
	// Fresh is the age up to which an answer is not replaced.
	Fresh time.Duration
	// Share bounds the load: a question takes one part in so many of the time; 0: all.
	Share int

	mu     sync.Mutex
	answer Answer[T]
	took   time.Duration
	began  time.Time     // of the running question
	done   chan struct{} // closed when it ends; nil when none runs
	closed bool
}

// Answer is the last answer to a question.
type Answer[T any] struct {
	Value T
	At    time.Time // zero if there is none yet
	// Waiting is how long the question has been running that is to replace it; 0 if none
	// runs.
	Waiting time.Duration
}

// Get returns the last answer. If it is not fresh, a new question begins, and Get waits
// for it, but not longer than patience.
func (b *Background[T]) Get(patience time.Duration) Answer[T] {
	if done := b.refresh(); done != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	answer := b.answer
	if b.done != nil {
		answer.Waiting = max(time.Since(b.began), 1)
	}
	return answer
}

// refresh begins a question if one is due, and returns when the running one ends.
func (b *Background[T]) refresh() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done != nil {
		return b.done
	}
	if due := max(b.Fresh, time.Duration(b.Share)*b.took); b.closed || !b.answer.At.IsZero() && time.Since(b.answer.At) < due {
		return nil
	}
	done := make(chan struct{})
	b.done, b.began = done, time.Now()
	go b.ask(done)
	return done
}

func (b *Background[T]) ask(done chan struct{}) {
	value := b.Ask(context.Background())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer, b.took = Answer[T]{Value: value, At: time.Now()}, time.Since(b.began)
	b.done = nil
	close(done)
}

// Close keeps further questions from being asked, and returns when none runs, or with the
// context's error.
func (b *Background[T]) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	done := b.done
	b.mu.Unlock()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
