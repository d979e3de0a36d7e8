package server_test

import (
	"context"
	"net"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"
	"github.com/holdfast-csi/holdfast/internal/grpcserver/peertest"
)

// loopback is a transport whose pipes are TCP addresses of this machine, and whose
// processes are the hosts at their other ends.
type loopback struct{ bound chan net.Addr }

func (loopback) Probe(context.Context, string) (*server.Process, error) { return nil, nil }

func (l loopback) Listen(ctx context.Context, _, _ string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err == nil {
		l.bound <- listener.Addr()
	}
	return listener, err
}

func (loopback) Client(connection net.Conn) server.Process {
	return server.Process{ID: uint32(connection.RemoteAddr().(*net.TCPAddr).IP.To4()[3])}
}

// A client of a pipe that is silent, slow, greedy or of another protocol costs bounded
// memory, and the call of another process is answered.
func TestRun_survivesHostileClients(t *testing.T) {
	transport := loopback{make(chan net.Addr, 1)}
	start(t, server.Options{Versions: []api.Definition{echo("", "v1", same)}, Transport: transport})
	address := (<-transport.bound).String()
	dial := dialer(func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	})
	peertest.Attack(t, peertest.Server{Network: "tcp", Address: address, Path: "/v1.Test/Echo", Ask: func(ctx context.Context) error {
		_, err := call(ctx, dial.connect(t, `\\.\pipe\csi-proxy-v1`), "v1", "text")
		return err
	}})
}
