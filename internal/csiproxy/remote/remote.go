// Package remote implements api.Host by csi-proxy's pipe: callers use it as they
// use package host, which works in their own process.
package remote

import (
	"context"
	"errors"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

// Proxy is a connection to csi-proxy, which may come and go.
type Proxy struct {
	client *client.Client
}

// Open prepares the connection; nothing is dialled until the first call. The
// proxy must serve v1.
func Open(o client.Options) (*Proxy, error) {
	o.Oldest = v1.Version
	c, err := client.New(o)
	if err != nil {
		return nil, err
	}
	return &Proxy{client: c}, nil
}

// Check finds out whether the proxy is there: ErrUnavailable when it is not,
// ErrUnsupported when it is too old or too new.
func (p *Proxy) Check(ctx context.Context) error { return translate(ctx, p.client.Check(ctx)) }

// Close ends the connection when its last call has ended.
func (p *Proxy) Close() error { return p.client.Close() }

// Host is the machine. It has no System: services are the node's own affair.
func (p *Proxy) Host() api.Host { return Host(p.client) }

// Host is the machine behind any client of v1.
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

// done is the error of a call whose response is empty.
func done[Response any](ctx context.Context, _ Response, err error) error { return translate(ctx, err) }

var errNoSystem = errors.New("csi-proxy v1 has no operations on services and firmware")
