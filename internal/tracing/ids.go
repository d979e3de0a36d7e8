package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// IDs generates the IDs of traces and spans (sdktrace.IDGenerator). They are random, except
// for a root span that Finish exports: it has those that Begin generated.
type IDs struct{}

type idsKey struct{}

// withIDs returns a context in which the next root span has the IDs of another one.
func withIDs(ctx context.Context, of trace.SpanContext) context.Context {
	return context.WithValue(ctx, idsKey{}, of)
}

// NewIDs returns the IDs of a root span.
func (IDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if of, ok := ctx.Value(idsKey{}).(trace.SpanContext); ok {
		return of.TraceID(), of.SpanID()
	}
	var id trace.TraceID
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64()) //nolint:gosec // unique, not secret
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64()) //nolint:gosec // unique, not secret
	}
	return id, newSpanID()
}

// NewSpanID returns the ID of a span that is not a root.
func (IDs) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return newSpanID() }

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64()) //nolint:gosec // unique, not secret
	}
	return id
}
