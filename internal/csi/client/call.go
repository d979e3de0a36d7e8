package client

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csi/message"
)

type rpc[Q proto.Message, A any] func(ctx context.Context, request Q, options ...grpc.CallOption) (A, error)

// call makes one call: bounded, logged, its error translated.
func call[Q proto.Message, A any](
	ctx context.Context, c *Client, name string, request Q, invoke rpc[Q, A],
) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	defer c.begin()()
	start, thing := time.Now(), subject(request)
	ctx, end := c.traced(ctx, name, thing)
	ctx, arrived := c.noteArrival(ctx)
	var trailer metadata.MD
	answer, err := invoke(ctx, request, grpc.Trailer(&trailer))
	err = ended(ctx, known(arrived.checked(err)))
	if warnings := trailer.Get(message.WarningTrailer); len(warnings) > 0 {
		secrets := message.SecretsOf(request)
		for _, text := range warnings {
			backend.Warn(ctx, secrets.Text(text))
		}
	}
	c.observe(name, err, time.Since(start))
	noteCode(ctx, name, err)
	code := status.Code(err).String()
	attributes := []slog.Attr{
		slog.String("driver", c.options.Driver),
		slog.String("rpc", name),
		slog.String("volume", thing),
		slog.Duration("duration", time.Since(start)),
		slog.String("code", code),
	}
	if err != nil {
		err = translate(err, c.options.Driver, name, thing, message.SecretsOf(request))
		attributes = append(attributes, slog.String("error", err.Error()))
	}
	end(err, code)
	c.options.Logger.LogAttrs(ctx, slog.LevelDebug, "driver called", attributes...)
	return answer, err
}

// known gives an error whose code gRPC does not define the code Unknown, which means the
// same (gRPC, "Status codes and their use in gRPC"). The names of codes are values of
// metrics' labels: a driver must not be able to make any number of them.
func known(err error) error {
	answer, ok := status.FromError(err)
	if !ok || answer.Code() <= codes.Unauthenticated {
		return err
	}
	return status.Errorf(codes.Unknown, "code %d: %s", uint32(answer.Code()), answer.Message())
}

// CollectWarnings returns a context for calls, and a function that returns the warnings of
// those that have succeeded (backend.Warn). Drivers other than Holdfast's have none.
func CollectWarnings(ctx context.Context) (collecting context.Context, texts func() []string) {
	return backend.CollectWarnings(ctx)
}

// ended is the error of a call that failed after its deadline: the driver's answer is
// then about interrupted work, and does not mean that the work will never be done. Its
// words are kept.
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	expired := status.FromContextError(ctx.Err())
	if answer, ok := status.FromError(err); ok && answer.Code() == expired.Code() {
		return err
	}
	return status.Errorf(expired.Code(), "%v; the driver said then: %v", ctx.Err(), err)
}

func (c *Client) observe(name string, err error, took time.Duration) {
	if c.options.Observe != nil {
		c.options.Observe("/csi.v1."+serviceOf(name)+"/"+name, status.Code(err).String(), took)
	}
}

// serviceOf returns the service of an RPC by its name.
func serviceOf(name string) string {
	switch {
	case strings.HasPrefix(name, "Node"):
		return "Node"
	case strings.Contains(name, "GroupSnapshot"), strings.HasPrefix(name, "GroupController"):
		return "GroupController"
	case strings.HasPrefix(name, "GetPlugin"), name == "Probe":
		return "Identity"
	case strings.HasPrefix(name, "GetMetadata"):
		return "SnapshotMetadata"
	}
	return "Controller"
}

// subject is the object of a request: a volume, a snapshot, or the name of a new one.
func subject(request any) string {
	switch request := request.(type) {
	case interface{ GetVolumeId() string }:
		return request.GetVolumeId()
	case interface{ GetSnapshotId() string }:
		return request.GetSnapshotId()
	case interface{ GetGroupSnapshotId() string }:
		return request.GetGroupSnapshotId()
	case interface{ GetName() string }:
		return request.GetName()
	}
	return ""
}
