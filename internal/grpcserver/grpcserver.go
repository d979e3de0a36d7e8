// Package grpcserver makes the gRPC servers of Holdfast's sockets. It has their limits in
// one place: gRPC's own defaults have none for the streams of a connection, and neither
// for the connections nor for the time in which a request arrives. A peer that is slow,
// silent or greedy costs bounded memory, and no other peer its calls.
package grpcserver

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-csi/holdfast/internal/connlimit"
)

// Limits of a server; 0 is the default.
type Limits struct {
	// Message is the longest request in bytes: gRPC's 4 MiB by default, which a
	// CreateVolume with the topology of 5,000 nodes needs a part of.
	Message int
	// Calls and CallsOfPeer bound the calls that run or arrive, 1,024 and 512: those that
	// are too many are answered with UNAVAILABLE, which callers repeat. Calls of peers that
	// the system does not name are bounded by Calls alone (package connlimit). Calls of one
	// connection above 256 wait in their client.
	Calls, CallsOfPeer int
	// Arrival is how long a request may take to arrive, 30 s.
	Arrival time.Duration
	// Connections are as package connlimit has them.
	Connections connlimit.Limits
}

const (
	streams    = 256              // calls at once over a connection
	headerList = 16 << 10         // bytes of all headers of a call
	preface    = 10 * time.Second // for the beginning of a connection
	// buffer in bytes, for reading and for writing: messages are small, and a CO may open
	// a connection for each call.
	buffer = 4 << 10
)

func (l Limits) withDefaults() Limits {
	if l.Message == 0 {
		l.Message = 4 << 20
	}
	if l.Calls == 0 {
		l.Calls = 1024
	}
	if l.CallsOfPeer == 0 {
		l.CallsOfPeer = 512
	}
	if l.Arrival == 0 {
		l.Arrival = 30 * time.Second
	}
	return l
}

// Server is a gRPC server with limits.
type Server struct {
	*grpc.Server
	limits Limits
	calls  *calls
}

// New makes a server. Options come after the limits, and can replace those of gRPC.
func New(limits Limits, options ...grpc.ServerOption) *Server {
	limits = limits.withDefaults()
	c := newCalls(limits)
	return &Server{limits: limits, calls: c, Server: grpc.NewServer(append([]grpc.ServerOption{
		grpc.MaxRecvMsgSize(limits.Message), grpc.MaxConcurrentStreams(streams), grpc.MaxHeaderListSize(headerList),
		grpc.ConnectionTimeout(preface), grpc.ReadBufferSize(buffer), grpc.WriteBufferSize(buffer),
		grpc.StatsHandler(c), grpc.InTapHandle(c.admit), grpc.ChainUnaryInterceptor(arrived),
		grpc.ChainStreamInterceptor(streaming),
	}, options...)...)}
}

// Serve is that of grpc.Server, with the limits of connections.
func (s *Server) Serve(listener net.Listener) error {
	return s.Server.Serve(named{connlimit.New(listener, s.limits.Connections)})
}

// named gives connections the names of their peers, by which their calls are counted.
type named struct{ *connlimit.Listener }

// Accept implements net.Listener.
func (l named) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{accepted, address{accepted.RemoteAddr(), connlimit.Peer(accepted)}}, nil
}

type conn struct {
	net.Conn
	from address
}

// RemoteAddr implements net.Conn.
func (c conn) RemoteAddr() net.Addr { return c.from }

type address struct {
	net.Addr
	peer string
}

// arrived ends the time for the arrival of a request.
func arrived(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	endArrival(ctx)
	return handler(ctx, request)
}

// streaming ends it at once: messages of a stream come at any time.
func streaming(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	endArrival(stream.Context())
	return handler(service, stream)
}

func endArrival(ctx context.Context) {
	if one, ok := ctx.Value(callKey{}).(*call); ok {
		one.arrival.Stop()
	}
}
