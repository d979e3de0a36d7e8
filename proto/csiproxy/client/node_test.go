package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/proxytest"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"

	"github.com/holdfast-csi/holdfast/proto/csiproxy"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
)

// node is a machine with pipes, where processes of csi-proxy start and stop.
type node struct {
	t       *testing.T
	pipes   *proxytest.Pipes
	machine *groupstest.Machine
	// slow, if not nil, makes the proxy do one call at a time, and a rescan last
	// until it is closed.
	slow chan struct{}

	mu sync.Mutex
	// open counts the connections of clients that are not closed.
	open, dialled int
	last          net.Conn
}

func newNode(t *testing.T) *node {
	return &node{t: t, pipes: proxytest.NewPipes(), machine: groupstest.Answering()}
}

func (n *node) limits() (limits server.Limits) {
	if n.slow != nil {
		limits.Calls = 1
	}
	return limits
}

func (n *node) host() api.Host {
	host := n.machine.Host()
	if n.slow != nil {
		host.Disks = slowDisks{host.Disks, n.slow}
	}
	return host
}

// slowDisks take from the channel when a rescan begins, and end it when the
// channel is closed.
type slowDisks struct {
	api.Disks
	slow chan struct{}
}

func (d slowDisks) Rescan(context.Context) error {
	for range d.slow {
	}
	return nil
}

// only are the definitions of the versions named.
func only(versions ...string) (definitions []api.Definition) {
	for _, definition := range csiproxy.Versions() {
		if slices.Contains(versions, definition.Version) {
			definitions = append(definitions, definition)
		}
	}
	return definitions
}

// future is a version that this source does not have yet; its content is arbitrary.
func future(name string) api.Definition {
	definition := only("v1")[0]
	definition.Version = name
	return definition
}

// run is a csi-proxy.exe that serves the versions whose pipes are free. The
// function stops it.
func (n *node) run(definitions ...api.Definition) (stop func()) {
	n.t.Helper()
	s, err := server.New(server.Options{
		Versions: definitions, Host: n.host(), Limits: n.limits(), Logger: slog.New(slog.DiscardHandler),
		Transport: n.pipes.As(server.Process{ID: 1, Program: `C:\csi-proxy.exe`}),
	})
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
	n.t.Cleanup(stop)
	return stop
}

func (n *node) dial(ctx context.Context, pipe string) (net.Conn, error) {
	conn, err := n.pipes.Dial(ctx, pipe)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open++
	n.dialled++
	n.last = conn
	return &counted{Conn: conn, closed: sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.open--
	})}, nil
}

// cut ends the last connection, as the end of the proxy's process does.
func (n *node) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.last.Close()
}

// counted is a connection that reports when it is closed.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// connections waits until the number of open connections is want.
func (n *node) connections(want int) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		n.mu.Lock()
		open := n.open
		n.mu.Unlock()
		if open == want {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d connections are open, want %d", open, want)
		}
	}
}

func (n *node) names() ([]string, error) {
	var names []string
	for name := range n.pipes.Owners() {
		names = append(names, name[len(`\\.\pipe\`):])
	}
	return names, nil
}

// plugin is a plugin's client that needs at least the version, and knows those of
// this source.
func (n *node) plugin(oldest string) client.Options {
	return client.Options{Oldest: oldest, Dialer: n.dial, Pipes: n.names}
}

func groupPipes() []api.Definition { return groups.Versions()[:3] }
