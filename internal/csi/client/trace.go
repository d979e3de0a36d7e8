package client

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
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
	attributes := []attribute.KeyValue{
		attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", "csi.v1."+serviceOf(call)), attribute.String("rpc.method", call),
	}
	if c.options.Driver != "" {
		attributes = append(attributes, tracing.Driver(c.options.Driver))
	}
	if subject != "" {
		attributes = append(attributes, attribute.String("csi.subject", subject))
	}
	ctx, end := tracing.Step(ctx, "csi.v1."+serviceOf(call)+"/"+call, attributes...)
	span := trace.SpanFromContext(ctx)
	ctx = metadata.AppendToOutgoingContext(ctx, tracing.Header, tracing.Traceparent(ctx))
	return ctx, func(err error, code string) {
		span.SetAttributes(attribute.String("rpc.grpc.status_code", code))
		end(err)
	}
}
