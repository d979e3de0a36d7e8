package server

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// connections are the connections of one pipe. Their number is bounded. The server must
// know them to close those that have not sent their HTTP/2 preface, for which gRPC's stop
// would wait.
type connections struct {
	room *semaphore.Weighted
	// share is the most connections of one process, which owner returns.
	share int
	owner func(net.Conn) Process

	mu        sync.Mutex
	open      map[*connection]bool
	byProcess map[uint32]int
	stopping  bool
}

func newConnections(limits Limits, owner func(net.Conn) Process) *connections {
	return &connections{
		room: semaphore.NewWeighted(int64(limits.Connections)), share: limits.ConnectionsOfClient, owner: owner,
		open: map[*connection]bool{}, byProcess: map[uint32]int{},
	}
}

// connection is an accepted connection.
type connection struct {
	net.Conn
	all  *connections
	id   uint32      // of the client's process; 0 if it is not known
	sent atomic.Bool // the client has sent a byte
	gone sync.Once
}

// Read implements net.Conn.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.sent.Store(true)
	}
	return n, err
}

// Close closes the connection and admits the next one.
func (c *connection) Close() error {
	err := c.Conn.Close()
	c.gone.Do(func() { c.all.remove(c) })
	return err
}

// add adds a connection. It closes it at once if the server stops, and returns nil after
// it closed one that is above its process's share.
func (c *connections) add(raw net.Conn) *connection {
	added := &connection{Conn: raw, all: c, id: c.owner(raw).ID}
	c.mu.Lock()
	stopping := c.stopping
	tooMany := added.id != 0 && c.byProcess[added.id] >= c.share
	c.open[added] = true
	c.byProcess[added.id]++
	c.mu.Unlock()
	if stopping || tooMany {
		_ = added.Close()
	}
	if tooMany {
		return nil
	}
	return added
}

func (c *connections) remove(gone *connection) {
	c.mu.Lock()
	delete(c.open, gone)
	if c.byProcess[gone.id]--; c.byProcess[gone.id] == 0 {
		delete(c.byProcess, gone.id)
	}
	c.mu.Unlock()
	c.room.Release(1)
}

// end closes the connections whose client has sent nothing, or all, and accepts no more.
func (c *connections) end(all bool) {
	c.mu.Lock()
	c.stopping = true
	var closing []*connection
	for connection := range c.open {
		if all || !connection.sent.Load() {
			closing = append(closing, connection)
		}
	}
	c.mu.Unlock()
	for _, connection := range closing {
		_ = connection.Close()
	}
}

// listener accepts a connection when there is room; until then clients find the pipe busy
// and retry.
type listener struct {
	net.Listener
	connections *connections
	ctx         context.Context //nolint:containedctx // for Accept; it ends with the listener
	cancel      context.CancelFunc
}

func (c *connections) listen(ctx context.Context, inner net.Listener) *listener {
	ctx, cancel := context.WithCancel(ctx)
	return &listener{Listener: inner, connections: c, ctx: ctx, cancel: cancel}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		if err := l.connections.room.Acquire(l.ctx, 1); err != nil {
			return nil, net.ErrClosed
		}
		raw, err := l.Listener.Accept()
		if err != nil {
			l.connections.room.Release(1)
			return nil, err
		}
		if added := l.connections.add(raw); added != nil {
			return added, nil
		}
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.cancel()
	return l.Listener.Close()
}

// identity implements gRPC's credentials for a pipe: without encryption, which a pipe of
// one machine does not need, but with the client's process, read once per connection.
type identity struct{ transport Transport }

// client is the identity as gRPC carries it to the calls.
type client struct {
	credentials.CommonAuthInfo
	process Process
}

// AuthType implements credentials.AuthInfo.
func (client) AuthType() string { return "named pipe" }

// ServerHandshake implements credentials.TransportCredentials.
func (i identity) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	inner := raw
	if wrapped, ok := raw.(*connection); ok {
		inner = wrapped.Conn
	}
	return raw, client{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity},
		process: i.transport.Client(inner)}, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (identity) ClientHandshake(_ context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return raw, client{}, nil
}

// Info implements credentials.TransportCredentials.
func (identity) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "named pipe"}
}

// Clone implements credentials.TransportCredentials.
func (i identity) Clone() credentials.TransportCredentials { return i }

// OverrideServerName implements credentials.TransportCredentials.
func (identity) OverrideServerName(string) error { return nil }

// Caller returns the process that made the call of ctx.
func Caller(ctx context.Context) (Process, bool) {
	if p, ok := peer.FromContext(ctx); ok {
		if c, ok := p.AuthInfo.(client); ok {
			return c.process, true
		}
	}
	return Process{}, false
}
