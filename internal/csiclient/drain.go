package csiclient

import "context"

// Drain closes a dialled Client as soon as no call runs over it any more, or
// when the context ends.
func (c *Client) Drain(ctx context.Context) error {
	c.mu.Lock()
	idle := c.idle
	c.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
	return c.Close()
}

// begin counts a call; the function that it returns ends it.
func (c *Client) begin() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running++; c.running == 1 {
		c.idle = make(chan struct{})
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.running--; c.running == 0 {
			close(c.idle)
			c.idle = nil
		}
	}
}
