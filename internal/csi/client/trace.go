package client

import (
	"context"
	"strings"
	"unicode"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// traced begins the span of a call within a trace, and passes the trace to the driver. Calls
// of no operation, such as those that poll, have no span. Attributes name the subject of the
// call, and never a secret, a context or parameters.
func (c *Client) traced(ctx context.Context, call, subject string) (context.Context, func(err error, code string)) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, func(error, string) {}
	}
	method := "csi.v1." + serviceOf(call) + "/" + call
	attributes := []attribute.KeyValue{attribute.String("rpc.system.name", "grpc"), attribute.String("rpc.method", method)}
	if c.options.Driver != "" {
		attributes = append(attributes, tracing.Driver(c.options.Driver))
	}
	if subject != "" {
		attributes = append(attributes, tracing.Subject(subject))
	}
	ctx, end := tracing.Call(ctx, method, attributes...)
	span := trace.SpanFromContext(ctx)
	ctx = metadata.AppendToOutgoingContext(ctx, tracing.Header, tracing.Traceparent(ctx))
	return ctx, func(err error, code string) {
		span.SetAttributes(attribute.String("rpc.response.status_code", canonical(code)))
		end(err)
	}
}

// canonical returns the name of a gRPC code as in the semantic conventions: DEADLINE_EXCEEDED
// for DeadlineExceeded.
func canonical(code string) string {
	switch code {
	case codes.OK.String():
		return code
	case codes.Canceled.String():
		return "CANCELLED"
	}
	var name strings.Builder
	for i, letter := range code {
		if i > 0 && unicode.IsUpper(letter) {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToUpper(letter))
	}
	return name.String()
}
