// Package tracing makes the spans of operations that outlive a call: a trace that several
// attempts, processes and leaders continue, because its context is in the operation's intent.
//
// A context without a span costs nothing: Step returns it. So the code below an operation
// needs no tracer, and nothing is measured without an exporter.
package tracing

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the instrumentation, as OpenTelemetry recommends: that of the module.
const scope = "github.com/holdfast-csi/holdfast"

// Tracer begins traces. A nil Tracer begins none.
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer, nil without a provider. The provider's generator of IDs must be IDs.
func New(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{provider.Tracer(scope)}
}

// End ends a span. An error that is not nil is its status.
type End func(err error)

// Begin begins the trace of an operation that attempts and other processes continue, and
// returns its W3C traceparent, 55 bytes; "" without a Tracer. Its root span does not exist
// before Finish, which can be called by another process.
//
//nolint:contextcheck // a trace outlives the calls that begin and finish it
func (t *Tracer) Begin(name string) (traceparent string) {
	if t == nil {
		return ""
	}
	// The provider's sampler decides; the span is never ended, and so never exported.
	ctx, _ := t.tracer.Start(context.Background(), name)
	return Traceparent(ctx)
}

// Attempt begins a span below the root of a trace that Begin began. Without a traceparent it
// begins a trace of its own.
func (t *Tracer) Attempt(
	ctx context.Context, traceparent, name string, attributes ...attribute.KeyValue,
) (context.Context, End) {
	if t == nil {
		return ctx, func(error) {}
	}
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	if traceparent != "" {
		ctx = parse(ctx, traceparent)
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithAttributes(attributes...))
	return ctx, ending(span)
}

// Linked begins a trace of its own with a link to that of a traceparent, which may be "".
func (t *Tracer) Linked(
	ctx context.Context, traceparent, name string, attributes ...attribute.KeyValue,
) (context.Context, End) {
	if t == nil {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(ctx, name, linked(traceparent, attributes)...)
	return ctx, ending(span)
}

// linked returns the options of a root span with a link, if there is a traceparent.
//
//nolint:contextcheck // a trace outlives the calls that begin and finish it
func linked(traceparent string, attributes []attribute.KeyValue) []trace.SpanStartOption {
	options := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithAttributes(attributes...)}
	if other := trace.LinkFromContext(parse(context.Background(), traceparent)); other.SpanContext.IsValid() {
		options = append(options, trace.WithLinks(other))
	}
	return options
}

// Finish exports the root span of a trace that Begin began, in this process or another one,
// with a link to the trace of another traceparent, which may be "".
//
//nolint:contextcheck // a trace outlives the calls that begin and finish it
func (t *Tracer) Finish(
	traceparent, link, name string, began time.Time, err error, attributes ...attribute.KeyValue,
) {
	if t == nil || traceparent == "" {
		return
	}
	root := trace.SpanContextFromContext(parse(context.Background(), traceparent))
	if !root.IsSampled() {
		return
	}
	options := append(linked(link, attributes), trace.WithTimestamp(began))
	_, span := t.tracer.Start(withIDs(context.Background(), root), name, options...)
	ending(span)(err)
}

// Past exports a span below the root of a trace, which began then and ends now.
//
//nolint:contextcheck // a trace outlives the calls that begin and finish it
func (t *Tracer) Past(traceparent, name string, began time.Time) {
	if t == nil || traceparent == "" {
		return
	}
	_, span := t.tracer.Start(parse(context.Background(), traceparent), name, trace.WithTimestamp(began))
	span.End()
}

// Step begins a span below that of the context. Without one it does nothing.
func Step(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, End) {
	return below(ctx, name, trace.SpanKindInternal, attributes)
}

// Call is Step for a call of another component.
func Call(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, End) {
	return below(ctx, name, trace.SpanKindClient, attributes)
}

func below(ctx context.Context, name string, kind trace.SpanKind, attributes []attribute.KeyValue) (context.Context, End) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, func(error) {}
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
	return ctx, ending(span)
}

// Traceparent returns the W3C traceparent of the context's span; "" without one.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[Header]
}

// Header is the gRPC metadata of a call that has a traceparent (W3C Trace Context).
const Header = "traceparent"

// parse returns a context with the span that a traceparent names; an invalid one names none.
func parse(ctx context.Context, traceparent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{Header: traceparent})
}

// longestStatus bounds the text of an error in a span, in bytes. A driver can answer with
// megabytes, and a collector rejects the spans of a whole batch that is too large.
const longestStatus = 1 << 10

// ending ends a span. The error's text is that of an event or a log: it has no secrets.
func ending(span trace.Span) End {
	return func(err error) {
		if err != nil {
			text := err.Error()
			span.SetStatus(codes.Error, strings.ToValidUTF8(text[:min(len(text), longestStatus)], ""))
		}
		span.End()
	}
}
