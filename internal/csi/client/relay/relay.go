// Package relay stands between a caller of CSI and a driver: it hands every
// call on unchanged, known or not, and logs the request and the answer.
// Messages pass as bytes, so that fields that this program does not know pass,
// too; so do metadata, deadlines, cancellation, and errors with their details.
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
)

// maximumMessage in bytes is out of the way of any call: what is too large is
// for the caller and the driver to say.
const maximumMessage = 256 << 20

// drainTime is how long calls in flight may still run after the end.
const drainTime = 10 * time.Second

// Options of a Relay.
type Options struct {
	// Logger gets each call when it ended, errors as warnings.
	Logger *slog.Logger
	// Verbose adds requests and answers to the log, without what is secret.
	Verbose bool
}

// Relay hands calls to one driver.
type Relay struct {
	options Options
	target  *grpc.ClientConn
}

// New makes a relay to a driver's socket. It is connected by the first call.
func New(endpoint string, options Options) (*Relay, error) {
	path, err := client.SocketPath(endpoint)
	if err != nil {
		return nil, err
	}
	target, err := client.Connect(path, grpc.WithDefaultCallOptions(
		grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(maximumMessage), grpc.MaxCallSendMsgSize(maximumMessage)))
	if err != nil {
		return nil, err
	}
	return &Relay{options: options, target: target}, nil
}

// Serve hands calls on until the context ends, and then waits for those in
// flight, ten seconds at most. It closes the listener and the connection.
func (r *Relay) Serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(r.handle),
		grpc.MaxRecvMsgSize(maximumMessage), grpc.MaxSendMsgSize(maximumMessage),
	)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { _ = r.target.Close() }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	late := time.AfterFunc(drainTime, server.Stop)
	defer late.Stop()
	server.GracefulStop()
	return nil
}

// handle is one call, of any method.
func (r *Relay) handle(_ any, caller grpc.ServerStream) error {
	method, known := grpc.MethodFromServerStream(caller)
	if !known {
		return status.Error(codes.Internal, "the call names no method")
	}
	record := newRecord(method, r.options)
	ctx, cancel := context.WithCancel(outgoing(caller.Context()))
	defer cancel()
	err := r.pass(ctx, method, caller, record)
	record.end(ctx, err)
	return err
}

func (r *Relay) pass(ctx context.Context, method string, caller grpc.ServerStream, record *record) error {
	driver, err := r.target.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go forward(caller, driver, record)
	err = back(caller, driver, record)
	caller.SetTrailer(driver.Trailer())
	return err
}

// forward hands on what the caller sends. It ends with the call at the latest:
// its context ends then.
func forward(caller grpc.ServerStream, driver grpc.ClientStream, record *record) {
	for {
		var message frame
		if err := caller.RecvMsg(&message); err != nil {
			if errors.Is(err, io.EOF) {
				_ = driver.CloseSend()
			}
			return
		}
		record.request(message)
		if driver.SendMsg(&message) != nil {
			return // back receives the reason
		}
	}
}

// back hands on what the driver answers; its error is the call's.
func back(caller grpc.ServerStream, driver grpc.ClientStream, record *record) error {
	for first := true; ; first = false {
		var message frame
		err := driver.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		record.answer(message)
		if first {
			header, err := driver.Header()
			if err == nil {
				err = caller.SendHeader(header)
			}
			if err != nil {
				return err
			}
		}
		if err := caller.SendMsg(&message); err != nil {
			return err
		}
	}
}

// outgoing carries the caller's metadata on, but for what gRPC itself writes.
func outgoing(ctx context.Context) context.Context {
	given, _ := metadata.FromIncomingContext(ctx)
	kept := metadata.MD{}
	for key, values := range given {
		if strings.HasPrefix(key, ":") || strings.HasPrefix(key, "grpc-") || key == "content-type" || key == "user-agent" {
			continue
		}
		kept[key] = values
	}
	return metadata.NewOutgoingContext(ctx, kept)
}

var _ encoding.CodecV2 = raw{}
