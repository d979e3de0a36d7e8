// Package otlp receives the traces that processes export over OTLP.
package otlp

import (
	"bytes"
	"cmp"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
)

// Receiver is an OTLP receiver.
type Receiver struct {
	// Address is its host and port.
	Address string

	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans []Span
	raw   []byte // all of the requests
}

// Span is a span with the process that exported it.
type Span struct {
	*spans.Span
	Service string
}

// Receive serves OTLP over gRPC at an address until the test ends.
func Receive(t testing.TB, address string) *Receiver {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r, server := &Receiver{Address: listener.Addr().String()}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r
}

// Export implements the service.
func (r *Receiver) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw = append(r.raw, prototext.Format(request)...)
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				r.spans = append(r.spans, Span{span, Value(resource.GetResource().GetAttributes(), "service.name")})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Text is everything that was received.
func (r *Receiver) Text() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.raw)
}

// Value is the text of an attribute, "" without one.
func Value(attributes []*common.KeyValue, key string) string {
	for _, attribute := range attributes {
		if attribute.GetKey() == key {
			return attribute.GetValue().GetStringValue()
		}
	}
	return ""
}

// All returns the spans.
func (r *Receiver) All() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Tree draws the trace whose root has a name: a line "process span" for each span, indented
// below its parent, in the order in which they began. It is nil without that root.
func (r *Receiver) Tree(root string) (lines []string) {
	all := r.All()
	slices.SortStableFunc(all, func(a, b Span) int { return cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()) })
	var draw func(of Span, depth int)
	draw = func(of Span, depth int) {
		lines = append(lines, strings.Repeat("  ", depth)+of.Service+" "+of.GetName())
		for _, span := range all {
			if bytes.Equal(span.GetParentSpanId(), of.GetSpanId()) {
				draw(span, depth+1)
			}
		}
	}
	for _, span := range all {
		if len(span.GetParentSpanId()) == 0 && span.GetName() == root {
			draw(span, 0)
		}
	}
	return lines
}
