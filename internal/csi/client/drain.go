package client

import (
	"context"
	"net"
)

// dial connects to the driver's socket, or to that which took over.
func (c *Client) dial(ctx context.Context, path string) (net.Conn, error) {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", path)
	if err == nil || c.options.Fallback == nil {
		return connection, err
	}
	other := c.options.Fallback()
	if other == "" || other == path {
		return nil, err
	}
	return dialer.DialContext(ctx, "unix", other)
}

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
