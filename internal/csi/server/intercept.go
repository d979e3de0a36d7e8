package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-csi/holdfast/internal/backend"
	csimessage "github.com/holdfast-csi/holdfast/internal/csi/message"
	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/internal/step"
	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// interceptor wraps every call: it checks limits, recovers panics, turns the error into
// a status, and writes one log line and one measurement.
type interceptor struct {
	log     *slog.Logger
	metrics *callMetrics
	driver  string
	node    string      // ID of this machine for the calls that name none
	rest    *time.Timer // of Options.Rest, if that is set
	tracker *progress.Tracker
}

// restAfter is the time without work after which Options.Rest is called.
const restAfter = 10 * time.Second

func (i *interceptor) unary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error,
) {
	message, ok := request.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "%s: a request that is not a protobuf message", info.FullMethod)
	}
	name := path.Base(info.FullMethod)
	ended := i.metrics.begin(name, message)
	start := time.Now()
	defer func() {
		if i.rest != nil && !onlyReads(name) {
			i.rest.Reset(restAfter)
		}
		ended(status.Code(err), time.Since(start))
		i.record(ctx, message, info.FullMethod, time.Since(start), err)
	}()
	if err := csimessage.Check(message); err != nil {
		return nil, toStatus(fmt.Errorf("%w: %w", backend.ErrInvalid, err), csimessage.SecretsOf(message))
	}
	i.describeSpan(ctx, message)
	ctx, warnings := backend.CollectWarnings(ctx)
	ctx = i.tracker.For(ctx, name, subject(message))
	response, err = i.timed(ctx, request, info.FullMethod, handler)
	if err != nil {
		return nil, toStatus(err, csimessage.SecretsOf(message))
	}
	if texts := warnings(); len(texts) > 0 {
		_ = grpc.SetTrailer(ctx, metadata.MD{csimessage.WarningTrailer: texts}) // the log has them, too
	}
	return response, nil
}

// describeSpan gives the span of a call its driver and its subject, by which the calls of a
// caller are found that has no trace: the kubelet's.
func (i *interceptor) describeSpan(ctx context.Context, message proto.Message) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(tracing.Driver(i.driver))
	if about := subject(message); about != "" {
		span.SetAttributes(tracing.Subject(about))
	}
}

// timed is call as a step, if the call changes something.
func (i *interceptor) timed(
	ctx context.Context, request any, method string, handler grpc.UnaryHandler) (response any, err error,
) {
	name := stepOf(path.Base(method))
	if name == "" {
		return i.call(ctx, request, method, handler)
	}
	ctx, end := step.Begin(step.With(ctx, i.metrics.steps, i.driver), name)
	defer func() { end(err) }()
	return i.call(ctx, request, method, handler)
}

// call runs the handler and turns a panic into an internal error: one bad call
// must not take the mounts' keeper down with it.
func (i *interceptor) call(
	ctx context.Context, request any, method string, handler grpc.UnaryHandler) (response any, err error,
) {
	defer func() {
		if cause := recover(); cause != nil {
			i.log.ErrorContext(ctx, "panic in a call", "rpc", path.Base(method), "stack", string(debug.Stack()))
			err = fmt.Errorf("a fault in holdfast ended the call: %v; the log has the details", cause)
		}
	}()
	return handler(ctx, request)
}

// record writes the one line of a call. The request itself is only there at
// the debug level, and then without its secrets.
func (i *interceptor) record(
	ctx context.Context, request proto.Message, method string, took time.Duration, err error,
) {
	name := path.Base(method)
	level := levelOf(name, status.Code(err))
	if !i.log.Enabled(ctx, level) {
		return
	}
	attributes := []slog.Attr{
		slog.String("rpc", name),
		slog.String("volume", subject(request)),
		slog.String("node", cmp.Or(textOf(request, "node_id"), i.node)),
		slog.Duration("duration", took),
		slog.String("code", status.Code(err).String()),
	}
	if err != nil {
		attributes = append(attributes, slog.String("error", status.Convert(err).Message()))
	}
	if i.log.Enabled(ctx, slog.LevelDebug) {
		attributes = append(attributes, slog.Any("request", csimessage.Loggable{Message: request}))
	}
	i.log.LogAttrs(ctx, level, "call", attributes...)
}

// levelOf logs the frequent successful calls of a CO at debug level.
func levelOf(method string, code codes.Code) slog.Level {
	switch code {
	case codes.OK:
		if isPolled(method) {
			return slog.LevelDebug
		}
		return slog.LevelInfo
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	}
	return slog.LevelWarn
}

// isPolled reports whether a CO repeats a call all the time.
func isPolled(method string) bool {
	switch method {
	case "Probe", "GetPluginInfo", "GetPluginCapabilities", "ControllerGetCapabilities",
		"GroupControllerGetCapabilities", "NodeGetCapabilities", "NodeGetVolumeStats",
		"NodeGetVolumeHealth", "NodeGetStorageHealth", "ListOperations":
		return true
	}
	return false
}

// onlyReads reports whether a call changes nothing. A CO and the controllers repeat such
// calls all the time: ListVolumes each minute, for example.
func onlyReads(method string) bool {
	return method == "Probe" || strings.HasPrefix(method, "Validate") ||
		strings.Contains(method, "Get") || strings.Contains(method, "List")
}

// subject names the object of a call: the volume, or else the snapshot or group, by ID
// or by its future name.
func subject(request proto.Message) string {
	for _, field := range []protoreflect.Name{"volume_id", "snapshot_id", "group_snapshot_id", "name", "source_volume_id"} {
		if text := textOf(request, field); text != "" {
			return text
		}
	}
	return ""
}

func textOf(request proto.Message, name protoreflect.Name) string {
	message := request.ProtoReflect()
	field := message.Descriptor().Fields().ByName(name)
	if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() || field.IsMap() {
		return ""
	}
	text := message.Get(field).String()
	return text[:min(len(text), csimessage.StringLimit)]
}
