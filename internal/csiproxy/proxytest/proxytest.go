// Package proxytest is a node for tests: a simulated Windows whose csi-proxy
// serves the KEP's API on pipes in memory.
package proxytest

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/host"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
	"github.com/holdfast-csi/holdfast/proto/csiproxy"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// Kubelet is the directory that the proxy works in.
const Kubelet = `C:\var\lib\kubelet`

// Node is a machine and its csi-proxy.
type Node struct {
	*windows.Machine
	t     testing.TB
	pipes *Pipes
	state string
	stop  func()
}

// New is a node whose proxy serves the versions named, all if none is. It has the
// directories plugins\x and pods\u of the kubelet.
func New(t testing.TB, versions ...string) *Node {
	t.Helper()
	n := &Node{Machine: windows.New(windows.Options{SANPolicy: windows.OfflineShared}), t: t, pipes: NewPipes(),
		state: winetest.Dir(t), stop: func() {}}
	for _, path := range []string{Kubelet + `\plugins\x`, Kubelet + `\pods\u`} {
		n.must(n.MkdirAll(path))
	}
	n.start(versions)
	t.Cleanup(func() {
		n.stop()
		n.must(n.Check())
	})
	return n
}

func (n *Node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// Restart ends the proxy's process, and begins a new one with the versions named.
func (n *Node) Restart(versions ...string) {
	n.t.Helper()
	n.stop()
	n.EndProcesses()
	n.start(versions)
}

func (n *Node) start(versions []string) {
	n.t.Helper()
	rules, err := paths.New(Kubelet)
	n.must(err)
	h, err := host.New(host.Options{Machine: n.Calls(), Rules: rules, StateDir: n.state, RequirePrivacy: true})
	n.must(err)
	definitions := slices.DeleteFunc(csiproxy.Versions(), func(d api.Definition) bool {
		return len(versions) > 0 && !slices.Contains(versions, d.Version)
	})
	s, err := server.New(server.Options{
		Versions: definitions, Host: h.API(), Transport: n.pipes.As(server.Process{ID: 1}), Logger: slog.New(slog.DiscardHandler),
	})
	n.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	n.stop = func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
		h.Close()
	}
}

// Options are those of a client on the node.
func (n *Node) Options() client.Options { return client.Options{Dialer: n.pipes.Dial} }

// Client is one that has found the proxy; it ends with the test.
func (n *Node) Client() *client.Client {
	n.t.Helper()
	c, err := client.Dial(n.t.Context(), n.Options())
	n.must(err)
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}
