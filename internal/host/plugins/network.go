package plugins

import (
	"context"
	"io"
	"net"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/pluginwatch"
)

// Network connects to drivers and their registrars. By default, these are unix sockets.
type Network interface {
	// Registrar connects to the registrar at a socket, in one attempt. The caller closes
	// the connection.
	Registrar(ctx context.Context, socket pluginwatch.Socket) (registration.RegistrationClient, io.Closer, error)
	// Dial makes a client of the driver at an endpoint, which need not listen yet.
	Dial(endpoint string, options csiclient.Options) (*csiclient.Client, error)
	// Reach returns an error if no server listens at an endpoint. With wait, a socket that
	// was made just now is tried again for an instant.
	Reach(ctx context.Context, endpoint string, wait bool) error
	// Appears waits until a server may listen at an endpoint, and for pause at most. It is
	// false when the context ended.
	Appears(ctx context.Context, endpoint string, pause time.Duration) bool
}

// sockets is the Network of unix sockets.
type sockets struct{}

func (sockets) Dial(endpoint string, options csiclient.Options) (*csiclient.Client, error) {
	return csiclient.Dial(endpoint, options)
}

func (sockets) Reach(ctx context.Context, endpoint string, wait bool) error {
	dial := dialOnce
	if wait {
		dial = connect
	}
	probe, err := dial(ctx, endpoint)
	if err != nil {
		return err
	}
	return probe.Close()
}

func (sockets) Appears(ctx context.Context, endpoint string, pause time.Duration) bool {
	return appears(ctx, endpoint, pause)
}

// dialOnce dials once; it does not wait for a server that does not listen yet.
func dialOnce(ctx context.Context, path string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", path)
}
