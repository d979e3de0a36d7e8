// Package connlimit bounds the connections of a listener, in all and of one peer, so that
// a peer that opens connections and never uses them takes only its share. The peer is the
// process at the other end of a unix socket, and the host at the other end of a TCP
// connection. Peers that the system does not name have no share, and all connections as
// their limit: with one share for all, one of them could keep out the others. What is too many is closed at once: its client sees that and tries again
// later. Servers of gRPC and of HTTP use it.
package connlimit

import (
	"net"
	"strconv"
	"sync"
)

// The limits of a listener whose Limits name none. A kubelet opens a connection for each
// of its calls, and after a reboot it calls for every volume of its pods at once.
const (
	DefaultPerPeer = 512
	DefaultAll     = 2048
)

// Limits of connections; 0 is the default.
type Limits struct{ PerPeer, All int }

// Listener accepts connections within limits.
type Listener struct {
	net.Listener
	limits Limits

	mu     sync.Mutex
	byPeer map[string]int
	all    int
}

// New bounds the connections of a listener.
func New(listener net.Listener, limits Limits) *Listener {
	if limits.PerPeer == 0 {
		limits.PerPeer = DefaultPerPeer
	}
	if limits.All == 0 {
		limits.All = DefaultAll
	}
	return &Listener{Listener: listener, limits: limits, byPeer: map[string]int{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(accepted); c != nil {
			return c, nil
		}
		_ = accepted.Close() // too many
	}
}

// admit returns nil for a connection that is too many.
func (l *Listener) admit(accepted net.Conn) net.Conn {
	key := Peer(accepted)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.limits.All || key != Unknown && l.byPeer[key] >= l.limits.PerPeer {
		return nil
	}
	l.all++
	l.byPeer[key]++
	return &connection{Conn: accepted, peer: key, leave: sync.OnceFunc(func() { l.leave(key) })}
}

func (l *Listener) leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.byPeer[key]--; l.byPeer[key] == 0 {
		delete(l.byPeer, key)
	}
}

// connection is an accepted connection.
type connection struct {
	net.Conn
	peer  string
	leave func()
}

// Close implements net.Conn, and admits the next connection.
func (c *connection) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

// Unknown is the peer of a connection that the system does not name.
const Unknown = ""

// Peer names the peer of a connection: the host of TCP, the process of a unix socket; or it
// is Unknown.
func Peer(accepted net.Conn) string {
	switch c := accepted.(type) {
	case *connection:
		return c.peer
	case *net.TCPConn:
		if address, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			return address.IP.String()
		}
	case *net.UnixConn:
		if id, ok := processOf(c); ok {
			return "process " + strconv.Itoa(id)
		}
	}
	return Unknown
}
