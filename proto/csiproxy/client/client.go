// Package client calls csi-proxy: the API of the Kubernetes enhancement proposal
// "CSI plugins on Windows nodes", in the newest version that the node's proxy serves.
//
//	proxy, err := client.Dial(ctx, client.Options{})
//	…
//	_, err = proxy.Mkdir(ctx, &v1.MkdirRequest{Path: `C:\var\lib\kubelet\plugins\x`})
//
// Callers use v1. If the proxy is older, the client converts a call; the error for a call
// that the older version cannot express wraps ErrVersion. Errors of the proxy are gRPC
// statuses.
package client

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"

	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

// Options configure a client. The zero value finds the proxy of a Windows node.
type Options struct {
	// Oldest is the oldest acceptable version of the API, such as v1; empty is v1alpha1.
	// The error for a proxy with older versions only wraps ErrVersion.
	Oldest string
	// Server selects whether the process that serves the pipe is checked.
	Server ServerCheck
	// Dialer connects to a pipe in place of Windows. Its error for a missing pipe must
	// wrap fs.ErrNotExist.
	Dialer func(ctx context.Context, pipe string) (net.Conn, error)
	// Pipes returns the names of the node's pipes, for error messages. nil lists those of
	// Windows, or none with a Dialer.
	Pipes func() ([]string, error)
}

// ServerCheck selects whether the process that serves a pipe must be one of SYSTEM or an
// administrator. Any account may create a pipe that csi-proxy has not created yet, and
// pose as csi-proxy.
type ServerCheck int

// The checks. In a container Windows may not report the owner of a process.
const (
	CheckIfPossible ServerCheck = iota // reject a process that is known to be another account's
	CheckAlways                        // reject a process whose owner Windows does not report, too
	CheckNever
)

var (
	// ErrNoProxy: no pipe of csi-proxy exists, or none answers.
	ErrNoProxy = errors.New("csi-proxy cannot be reached")
	// ErrVersion: csi-proxy serves no acceptable version, or none that can express the
	// call.
	ErrVersion = errors.New("csi-proxy lacks the version that is needed")
	// ErrServer: the pipe is served by a program that is not csi-proxy.
	ErrServer = errors.New("the pipe is not csi-proxy's")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("the client of csi-proxy is closed")
)

// Client is a connection to csi-proxy. After a restart of the proxy the next call connects
// again, with the newest version that the proxy serves then. The client repeats an
// interrupted call once on each connection, since all operations are idempotent.
type Client struct {
	// CSIProxyServiceClient has a method per RPC of v1.
	v1.CSIProxyServiceClient
	finder finder

	mu      sync.Mutex
	current *session
	closed  bool
	// finding is a lock for the call that searches for the proxy.
	finding chan struct{}
}

// New makes a client that searches for the proxy at its first call.
func New(o Options) (*Client, error) {
	finder, err := newFinder(o)
	if err != nil {
		return nil, err
	}
	c := &Client{finder: finder, finding: make(chan struct{}, 1)}
	c.CSIProxyServiceClient = v1.NewCSIProxyServiceClient(c)
	return c, nil
}

// Dial makes a client that has found the proxy. The error wraps ErrNoProxy,
// ErrVersion or ErrServer if that is the reason.
func Dial(ctx context.Context, o Options) (*Client, error) {
	c, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := c.Check(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Check returns nil if the proxy answers, and otherwise the errors of Dial.
func (c *Client) Check(ctx context.Context) error {
	s, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	err = s.verify(ctx)
	s.release()
	if err == nil || !s.lost() {
		return err
	}
	if s, err = c.replace(ctx, s); err == nil { // replace has verified the new session
		s.release()
	}
	return err
}

// Version is the version in use with the proxy; empty before the proxy was found. It can
// change when the proxy is replaced.
func (c *Client) Version() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return ""
	}
	return c.current.version
}

// Close ends the connection when the last call has ended. Later calls fail.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.current != nil {
		c.current.retire()
		c.current = nil
	}
	return nil
}

// Invoke implements grpc.ClientConnInterface.
func (c *Client) Invoke(ctx context.Context, method string, request, response any, options ...grpc.CallOption) error {
	s, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	err = s.repeated(ctx, method, request, response, options)
	s.release()
	if err == nil || !s.lost() || !cutOff(err) {
		return err
	}
	if s, err = c.replace(ctx, s); err != nil {
		return err
	}
	defer s.release()
	return s.repeated(ctx, method, request, response, options)
}

// NewStream implements grpc.ClientConnInterface. No version has streams.
func (c *Client) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("csi-proxy's API has no streams")
}

// acquire returns the present session, or searches for the proxy.
func (c *Client) acquire(ctx context.Context) (*session, error) {
	c.mu.Lock()
	s, closed := c.current, c.closed
	usable := s != nil && !s.lost()
	if usable {
		s.use()
	}
	c.mu.Unlock()
	switch {
	case closed:
		return nil, ErrClosed
	case usable:
		return s, nil
	}
	return c.replace(ctx, s)
}

// replace connects to the proxy again after a session is lost, unless another call
// has done so meanwhile, and returns the new session.
func (c *Client) replace(ctx context.Context, old *session) (*session, error) {
	select {
	case c.finding <- struct{}{}:
		defer func() { <-c.finding }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s, err := c.newer(old); s != nil || err != nil {
		return s, err
	}
	found, err := c.finder.find(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		found.retire()
		return nil, ErrClosed
	}
	if c.current != nil {
		c.current.retire()
	}
	c.current = found
	found.use()
	return found, nil
}

// newer returns the session with which another call has replaced the old one, or nil.
func (c *Client) newer(old *session) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.current == nil || c.current == old {
		return nil, nil
	}
	c.current.use()
	return c.current, nil
}
