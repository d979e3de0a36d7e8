package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync/atomic"

	"k8s.io/client-go/tools/clientcmd"
)

// meter relays connections to the API server and counts the bytes that it sends, as they
// are on the wire. It measures programs of any kind.
type meter struct {
	listener net.Listener
	server   string
	sent     atomic.Int64
	open     atomic.Int64 // connections
}

// newMeter listens on the loopback address until ctx ends. It returns the path of a
// kubeconfig for use through the meter, next to the given one.
func newMeter(ctx context.Context, kubeconfig string) (*meter, string, error) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return nil, "", err
	}
	m := &meter{}
	if m.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, "", err
	}
	for _, server := range config.Clusters {
		address, err := url.Parse(server.Server)
		if err != nil {
			return nil, "", err
		}
		m.server = net.JoinHostPort(address.Hostname(), cmp.Or(address.Port(), "443"))
		server.TLSServerName = address.Hostname()
		server.Server = "https://" + m.listener.Addr().String()
	}
	context.AfterFunc(ctx, func() { _ = m.listener.Close() })
	go m.serve(ctx)
	path := filepath.Join(filepath.Dir(kubeconfig), "kubeconfig-metered")
	return m, path, clientcmd.WriteToFile(*config, path)
}

func (m *meter) serve(ctx context.Context) {
	for {
		client, err := m.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			say("the relay to the API server: %v", err)
			continue
		}
		go m.relay(ctx, client)
	}
}

// relay copies both ways until one end closes its connection or ctx ends.
func (m *meter) relay(ctx context.Context, client net.Conn) {
	server, err := new(net.Dialer).DialContext(ctx, "tcp", m.server)
	if err != nil {
		say("the relay to the API server: %v", err)
		_ = client.Close()
		return
	}
	m.open.Add(1)
	defer m.open.Add(-1)
	closeBoth := func() { _, _ = client.Close(), server.Close() }
	defer closeBoth()
	defer context.AfterFunc(ctx, closeBoth)()
	go func() {
		_, _ = io.Copy(server, client) // ends with the connections
		closeBoth()
	}()
	_, _ = io.Copy(io.MultiWriter(client, counter{&m.sent}), server)
}

// counter counts the bytes that are written to it.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}
