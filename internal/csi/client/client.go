// Package client is the one typed CSI client of Holdfast. The host and the
// Kubernetes controllers call every driver through it, over its socket or over
// a connection inside the process. It gives each call a deadline, writes one
// debug line per call (never a request, which may contain secrets), caches the driver's
// capabilities for as long as the connection lasts, and turns gRPC codes into the
// sentinel errors of package backend: no code above it sees one.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
)

// DefaultTimeout bounds a call whose context has no earlier deadline: the kubelet's
// timeout of a whole mount or unmount step.
const DefaultTimeout = 2 * time.Minute

// MaximumSocketPath is how many bytes a unix socket's path may have: sun_path
// has 108 with the terminating zero (unix(7)).
const MaximumSocketPath = 107

// maximumAnswer bounds one message of a driver: a page of a listing fits, and a faulty
// driver cannot exhaust memory.
const maximumAnswer = 16 << 20

// Options of a Client. All are optional.
type Options struct {
	// Driver is the name used in errors and logs.
	Driver string
	// Timeout replaces DefaultTimeout.
	Timeout time.Duration
	Logger  *slog.Logger
	// Disconnected is called each time an established connection ends. It must not block.
	Disconnected func()
	// Fallback, if given, is asked for another socket of the same driver when its
	// own accepts no connection: of an instance that took over. "" is none.
	Fallback func() string
	// Observe is called after each call: the full method
	// (/csi.v1.Controller/CreateVolume), the gRPC code's name and the time.
	Observe func(method, code string, took time.Duration)
}

// Client calls one instance of one driver. It is safe for concurrent use.
type Client struct {
	options    Options
	connection *grpc.ClientConn // nil when it belongs to another component
	transport  grpc.ClientConnInterface
	identity   csi.IdentityClient
	controller csi.ControllerClient
	groups     csi.GroupControllerClient
	node       csi.NodeClient

	mu      sync.Mutex
	cache   capabilityCache
	running int           // calls
	idle    chan struct{} // closed when the last running call ends; nil if none runs
}

// New makes a Client over a connection that the caller keeps and closes, such
// as one inside the process.
func New(connection grpc.ClientConnInterface, options Options) *Client {
	client := newClient(options)
	client.use(connection)
	return client
}

func newClient(options Options) *Client {
	if options.Timeout == 0 {
		options.Timeout = DefaultTimeout
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Client{options: options}
}

func (c *Client) use(connection grpc.ClientConnInterface) {
	c.transport = connection
	c.identity = csi.NewIdentityClient(connection)
	c.controller = csi.NewControllerClient(connection)
	c.groups = csi.NewGroupControllerClient(connection)
	c.node = csi.NewNodeClient(connection)
}

// Dial makes a Client over a unix socket, given as a path or as a unix:// URL.
// The connection is made by the first call and again whenever it was lost.
func Dial(endpoint string, options Options) (*Client, error) {
	path, err := SocketPath(endpoint)
	if err != nil {
		return nil, err
	}
	client := newClient(options)
	connection, err := Connect(path, grpc.WithStatsHandler(&connectionWatch{client: client}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return client.dial(ctx, path) }))
	if err != nil {
		return nil, err
	}
	client.connection = connection
	client.use(connection)
	return client, nil
}

// Connect makes a connection to a driver's socket, for callers that need no Client.
func Connect(path string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	connection, err := grpc.NewClient("passthrough:///localhost", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", path)
		}),
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(),
		grpc.WithIdleTimeout(0), // the connection is watched: it must not end by itself
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2,
				MaxDelay: 2 * time.Second},
			MinConnectTimeout: 10 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maximumAnswer)),
	}, more...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to the driver at %s: %w", path, err)
	}
	return connection, nil
}

// Close ends the connection of a dialled Client.
func (c *Client) Close() error {
	if c.connection == nil {
		return nil
	}
	return c.connection.Close()
}

// Driver is the name given to the Client.
func (c *Client) Driver() string { return c.options.Driver }

// SocketPath is the path of a unix endpoint: a path, unix:PATH or unix://PATH.
func SocketPath(endpoint string) (string, error) {
	path := endpoint
	if rest, found := strings.CutPrefix(endpoint, "unix:"); found {
		path = rest
		if strings.HasPrefix(rest, "//") {
			path = rest[2:]
		}
	}
	switch {
	case path == "":
		return "", errors.New("the driver's endpoint is empty")
	case len(path) > MaximumSocketPath:
		return "", fmt.Errorf("the socket path %s has %d bytes; a unix socket's path has %d at most",
			path, len(path), MaximumSocketPath)
	}
	return path, nil
}

// connectionWatch drops the driver's capabilities when a connection ends: the next one
// may reach another version of it. It notes the trailers of answers.
type connectionWatch struct {
	client *Client
}

func (w *connectionWatch) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return ctx
}
func (w *connectionWatch) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return ctx
}

func (w *connectionWatch) HandleConn(_ context.Context, event stats.ConnStats) {
	if _, ended := event.(*stats.ConnEnd); !ended {
		return
	}
	w.client.forget()
	if w.client.options.Disconnected != nil {
		w.client.options.Disconnected()
	}
}
