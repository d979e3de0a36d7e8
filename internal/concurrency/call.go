package concurrency

import (
	"context"
	"sync"
)

// Calls runs one call of a key at a time, which all callers of the key share. The
// call continues when they leave. Unlike golang.org/x/sync/singleflight, it keeps
// nothing of a caller that left, so a call that hangs may be asked for without
// end. The zero value is ready to use.
type Calls[V any] struct {
	mu      sync.Mutex
	running map[string]*sharedCall[V]
}

type sharedCall[V any] struct {
	done  chan struct{} // closed when the rest is set
	value V
	err   error
}

// Do joins the running call of the key or starts one, and returns its result. The
// error is the cause of the context's end if that comes first.
func (c *Calls[V]) Do(ctx context.Context, key string, call func() (V, error)) (value V, err error) {
	current := c.join(key, call)
	select {
	case <-current.done:
		return current.value, current.err
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}

func (c *Calls[V]) join(key string, call func() (V, error)) *sharedCall[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if current := c.running[key]; current != nil {
		return current
	}
	current := &sharedCall[V]{done: make(chan struct{})}
	if c.running == nil {
		c.running = map[string]*sharedCall[V]{}
	}
	c.running[key] = current
	go func() {
		current.value, current.err = call()
		c.mu.Lock()
		delete(c.running, key)
		c.mu.Unlock()
		close(current.done)
	}()
	return current
}
