package server

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// calls handles every call of a pipe: it limits the number of running calls and the
// time of each, recovers panics, converts errors to statuses, and logs and measures.
type calls struct {
	pipe    string
	limit   time.Duration
	room    *semaphore.Weighted
	log     *slog.Logger
	metrics *callMetrics
}

func newCalls(pipe string, limits Limits, log *slog.Logger, metrics *callMetrics) *calls {
	return &calls{
		pipe: pipe, limit: limits.Call, room: semaphore.NewWeighted(int64(limits.Calls)), log: log, metrics: metrics,
	}
}

func (c *calls) unary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	message, ok := request.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "%s: a request that is not a protobuf message", info.FullMethod)
	}
	start := time.Now()
	response, err := c.limited(ctx, message, info.FullMethod, handler)
	err = toStatus(err, secretsOf(message))
	took := time.Since(start)
	c.metrics.ended(info.FullMethod, status.Code(err), took)
	c.record(ctx, message, info.FullMethod, took, err)
	if err != nil {
		return nil, err
	}
	return response, nil
}

// limited runs the operation when there is room, and answers when it returns, or with
// the grace period of Detach after its time is up: the operation's own error says more.
// An operation that hangs in Windows counts until it returns, so that the number of
// blocked threads has a bound.
func (c *calls) limited(
	ctx context.Context, request proto.Message, method string, handler grpc.UnaryHandler,
) (any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.limit,
		fmt.Errorf("%w: csi-proxy's own limit, %v", context.DeadlineExceeded, c.limit))
	defer cancel() // when Detach returns, the operation has returned or ctx has ended
	if err := c.enter(ctx); err != nil {
		return nil, fmt.Errorf("waiting for other operations on %s to end: %w", c.pipe, context.Cause(ctx))
	}
	c.metrics.inFlight.Inc()
	ended := func() {
		c.metrics.inFlight.Dec()
		c.room.Release(1)
	}
	return concurrency.Detach(ctx, c.log, ended, func(ctx context.Context) (any, error) {
		return c.guarded(ctx, request, method, handler)
	})
}

// enter waits for room, in the order of arrival.
func (c *calls) enter(ctx context.Context) error {
	if c.room.TryAcquire(1) {
		return nil
	}
	c.metrics.waiting.Inc()
	defer c.metrics.waiting.Dec()
	return c.room.Acquire(ctx, 1)
}

// guarded runs the operation and turns a panic into an internal error, without the
// secrets of the request: one bad request must not end the process and with it every
// pipe.
func (c *calls) guarded(
	ctx context.Context, request proto.Message, method string, handler grpc.UnaryHandler,
) (response any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			text := secretsOf(request).Text(fmt.Sprint(cause))
			c.log.ErrorContext(ctx, "panic in a call", "rpc", method, "pipe", c.pipe, "panic", text,
				"stack", string(debug.Stack()))
			err = fmt.Errorf("a fault in csi-proxy ended the call: %s; its log has the details", text)
		}
	}()
	return handler(ctx, request)
}

// record writes the log line of a call. Failures have a level that the default log
// shows; the questions that drivers ask all the time have one that it does not.
func (c *calls) record(ctx context.Context, request proto.Message, method string, took time.Duration, err error) {
	level := levelOf(method, status.Code(err))
	if !c.log.Enabled(ctx, level) {
		return
	}
	attributes := []slog.Attr{
		slog.String("rpc", strings.TrimPrefix(method, "/")),
		slog.String("pipe", c.pipe),
		slog.Group("request", describe(request.ProtoReflect())...),
		slog.Duration("duration", took),
		slog.String("code", status.Code(err).String()),
	}
	attributes = append(attributes, describeCaller(ctx)...)
	if err != nil {
		attributes = append(attributes, slog.String("error", status.Convert(err).Message()))
	}
	c.log.LogAttrs(ctx, level, "call", attributes...)
}

func describeCaller(ctx context.Context) []slog.Attr {
	caller, _ := Caller(ctx)
	return []slog.Attr{slog.Uint64("pid", uint64(caller.ID)), slog.String("program", caller.Program),
		slog.String("user", caller.User)}
}

// levelOf returns the debug level for questions that were answered.
func levelOf(method string, code codes.Code) slog.Level {
	switch code {
	case codes.OK:
		name := method[strings.LastIndexByte(method, '/')+1:]
		for _, question := range []string{"PathExists", "Is", "Get", "List"} {
			if strings.HasPrefix(name, question) {
				return slog.LevelDebug
			}
		}
		return slog.LevelInfo
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	}
	return slog.LevelWarn
}

// unknown answers calls that the pipe lacks: of a service of another pipe, or an RPC
// of another version.
func (c *calls) unknown(services []string) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		err := status.Errorf(codes.Unimplemented, "pipe %s serves %s and has no %.200s", c.pipe,
			strings.Join(services, ", "), method)
		attributes := append(describeCaller(stream.Context()), slog.String("rpc", fmt.Sprintf("%.200s", method)),
			slog.String("pipe", c.pipe), slog.String("code", codes.Unimplemented.String()))
		c.log.LogAttrs(stream.Context(), slog.LevelWarn, "call", attributes...)
		return err
	}
}
