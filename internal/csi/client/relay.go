package client

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

	"github.com/holdfast-csi/holdfast/internal/grpcserver"
)

// relayedMessage in bytes is above the limits of callers and drivers, which reject
// larger messages themselves.
const relayedMessage = 256 << 20

// relayDrain is how long calls in flight may still run after the end.
const relayDrain = 10 * time.Second

// RelayOptions configure a Relay.
type RelayOptions struct {
	// Logger gets each call when it ended, errors as warnings.
	Logger *slog.Logger
	// Verbose adds requests and answers to the log, without secrets.
	Verbose bool
}

// Relay forwards calls between a caller of CSI and a driver unchanged, also those of
// unknown methods, and logs the requests and the answers. Messages pass as bytes, so
// that fields that this program does not know pass, too; so do metadata, deadlines,
// cancellation, and errors with their details.
type Relay struct {
	options RelayOptions
	target  *grpc.ClientConn
}

// NewRelay makes a relay to a driver's socket. It is connected by the first call.
func NewRelay(endpoint string, options RelayOptions) (*Relay, error) {
	path, err := SocketPath(endpoint)
	if err != nil {
		return nil, err
	}
	target, err := Connect(path, grpc.WithDefaultCallOptions(
		grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(relayedMessage), grpc.MaxCallSendMsgSize(relayedMessage)))
	if err != nil {
		return nil, err
	}
	return &Relay{options: options, target: target}, nil
}

// Serve hands calls on until the context ends, and then waits for those in
// flight, ten seconds at most. It closes the listener and the connection.
func (r *Relay) Serve(ctx context.Context, listener net.Listener) error {
	server := grpcserver.New(grpcserver.Limits{Message: relayedMessage},
		grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(r.handle), grpc.MaxSendMsgSize(relayedMessage))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { _ = r.target.Close() }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	late := time.AfterFunc(relayDrain, server.Stop)
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
	record := newRelayRecord(method, r.options)
	ctx, cancel := context.WithCancel(outgoing(caller.Context()))
	defer cancel()
	err := r.pass(ctx, method, caller, record)
	record.end(ctx, err)
	return err
}

func (r *Relay) pass(ctx context.Context, method string, caller grpc.ServerStream, record *relayRecord) error {
	driver, err := r.target.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go relayRequests(caller, driver, record)
	err = relayAnswers(caller, driver, record)
	caller.SetTrailer(driver.Trailer())
	return err
}

// relayRequests forwards the caller's messages. It ends with the call at the latest, with
// whose context.
func relayRequests(caller grpc.ServerStream, driver grpc.ClientStream, record *relayRecord) {
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
			return // relayAnswers receives the reason
		}
	}
}

// relayAnswers forwards the driver's answers; its error is the call's.
func relayAnswers(caller grpc.ServerStream, driver grpc.ClientStream, record *relayRecord) error {
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
