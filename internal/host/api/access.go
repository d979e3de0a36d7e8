package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
)

// peer is the process at the other end of a connection.
type peer struct {
	uid    uint32
	pid    int32
	groups []uint32
}

// access lists the rights of a peer.
type access int

const (
	nothing access = iota
	reading
	everything
)

// accessOf decides: root and whom the host runs as may do everything, as may the
// members of Group; those of ReadGroup may read.
func (o Options) accessOf(p peer) access {
	in := func(group *uint32) bool { return group != nil && slices.Contains(p.groups, *group) }
	switch {
	case p.uid == 0 || int(p.uid) == os.Geteuid() || in(o.Group):
		return everything
	case in(o.ReadGroup):
		return reading
	}
	return nothing
}

// refusal is the text for a peer that may not do this, "" if it may.
func (o Options) refusal(p peer, method string) string {
	switch has := o.accessOf(p); {
	case has == everything, has == reading && method == http.MethodGet:
		return ""
	case has == reading:
		return fmt.Sprintf("uid %d may read only: use sudo, or become a member of the group that 'holdfast host --socket-group' names", p.uid)
	}
	return fmt.Sprintf("uid %d may not use this host: use sudo, or become a member of a group that 'holdfast host --socket-group' or '--socket-read-group' names", p.uid)
}

// connection is a connection with the credentials of its peer.
type connection struct {
	net.Conn
	peer  peer
	err   error
	close func()
}

// Close also ends the connection's count against its user's limit.
func (c *connection) Close() error {
	c.close()
	return c.Conn.Close()
}

// mostOfOne is how many connections one user may have: a user with read access
// must not be able to exclude others.
const mostOfOne = 512

// peerListener accepts connections and reads the credentials of their peers.
type peerListener struct {
	net.Listener
	mu    sync.Mutex
	count map[uint32]int // connections by uid
}

// Accept closes the connections that are too many.
func (d *peerListener) Accept() (net.Conn, error) {
	for {
		accepted, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &connection{Conn: accepted, close: func() {}}
		unix, ok := accepted.(*net.UnixConn)
		if !ok {
			c.err = fmt.Errorf("a connection over %s has no credentials", accepted.LocalAddr().Network())
			return c, nil
		}
		c.peer, c.err = peerOf(unix)
		if failed := c.err != nil; failed || d.enter(c) {
			return c, nil //nolint:nilerr // the server answers an unknown peer with the error
		}
		_ = accepted.Close() // too many connections of one user
	}
}

func (d *peerListener) enter(c *connection) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	uid := c.peer.uid
	if d.count[uid] >= mostOfOne && uid != 0 {
		return false
	}
	d.count[uid]++
	c.close = sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.count[uid]--; d.count[uid] == 0 {
			delete(d.count, uid)
		}
	})
	return true
}

type connectionKey struct{}

func withConnection(ctx context.Context, accepted net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, accepted)
}

// peerFrom returns the process that sent a request.
func peerFrom(ctx context.Context) (peer, error) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return peer{}, fmt.Errorf("the connection has no credentials")
	}
	return c.peer, c.err
}
