// Package remote implements api.Host by csi-proxy's pipe. Callers use it like package host,
// which works in their own process.
package remote

import (
	"context"
	"errors"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

// Proxy is a connection to csi-proxy that survives restarts of csi-proxy.
type Proxy struct {
	client *client.Client
}

// Open prepares the connection; the first call dials. The proxy must serve v1.
func Open(o client.Options) (*Proxy, error) {
	o.Oldest = v1.Version
	c, err := client.New(o)
	if err != nil {
		return nil, err
	}
	return &Proxy{client: c}, nil
}

// Check returns nil if the proxy answers, ErrUnavailable if it does not, and
// ErrUnsupported if it is too old or too new.
func (p *Proxy) Check(ctx context.Context) error { return translate(ctx, p.client.Check(ctx)) }

// Close ends the connection when its last call has ended.
func (p *Proxy) Close() error { return p.client.Close() }

// Host returns the machine. Its System rejects every call: v1 has no operations on
// services.
func (p *Proxy) Host() api.Host { return Host(p.client) }

// Host returns the machine behind any client of v1.
func Host(proxy v1.CSIProxyServiceClient) api.Host {
	return api.Host{
		Filesystem: filesystem{proxy},
		Disks:      disks{proxy},
		Volumes:    volumes{proxy},
		SMB:        smb{proxy},
		ISCSI:      iscsi{proxy},
		System:     system{},
	}
}

// done returns the error of a call with an empty response.
func done[Response any](ctx context.Context, _ Response, err error) error { return translate(ctx, err) }

var errNoSystem = errors.New("csi-proxy v1 has no operations on services and firmware")
