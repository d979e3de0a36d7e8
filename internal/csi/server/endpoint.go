package server

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/unixsocket"
)

// Endpoint is where a driver serves.
type Endpoint struct {
	// Path is the socket's file; "" when it is TCP.
	Path string
	tcp  string
}

// ParseEndpoint reads a CSI endpoint: unix:///dir/name.sock and the other forms of
// unixsocket.Path. On Windows tcp://127.0.0.1:PORT is taken as well, for tests under
// wine, which has no unix sockets. CSI knows unix sockets only, and every process that
// reaches the port can call the driver, so that no other address is taken and no other
// system does.
func ParseEndpoint(text string) (Endpoint, error) { return parseEndpoint(text, runtime.GOOS) }

func parseEndpoint(text, system string) (Endpoint, error) {
	address, isTCP := strings.CutPrefix(text, "tcp://")
	if !isTCP || system != "windows" {
		path, err := unixsocket.Path(text)
		return Endpoint{Path: path}, err
	}
	parsed, err := netip.ParseAddrPort(address)
	if err != nil || !parsed.Addr().IsLoopback() {
		return Endpoint{}, fmt.Errorf("endpoint %q: TCP is for tests on this machine only: tcp://127.0.0.1:PORT", text)
	}
	return Endpoint{tcp: address}, nil
}

// String is the endpoint as gRPC clients dial it.
func (e Endpoint) String() string {
	if e.tcp != "" {
		return "tcp://" + e.tcp
	}
	return "unix://" + e.Path
}

func (e Endpoint) listen(ctx context.Context) (net.Listener, error) {
	if e.tcp == "" {
		return unixsocket.Listen(ctx, e.Path)
	}
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", e.tcp)
}
