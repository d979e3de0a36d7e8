// Package tracingtest collects the spans of a test and draws their trees.
package tracingtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// Spans are the spans that all processes of a test have exported.
type Spans struct {
	exporter *tracetest.InMemoryExporter
	sampler  sdktrace.Sampler
}

// New returns Spans without a span.
func New() *Spans {
	return &Spans{exporter: tracetest.NewInMemoryExporter(), sampler: sdktrace.ParentBased(sdktrace.AlwaysSample())}
}

// NewUnsampled returns Spans whose sampler drops all.
func NewUnsampled() *Spans {
	return &Spans{exporter: tracetest.NewInMemoryExporter(), sampler: sdktrace.ParentBased(sdktrace.NeverSample())}
}

// Provider returns the provider of a new process.
func (s *Spans) Provider(t testing.TB) *sdktrace.TracerProvider {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.exporter), sdktrace.WithIDGenerator(tracing.IDs{}), sdktrace.WithSampler(s.sampler))
	t.Cleanup(func() { _ = provider.ForceFlush(t.Context()) })
	return provider
}

// Tracer returns the Tracer of a new process.
func (s *Spans) Tracer(t testing.TB) *tracing.Tracer { return tracing.New(s.Provider(t)) }

// All returns the spans.
func (s *Spans) All() tracetest.SpanStubs { return s.exporter.GetSpans() }

// Text returns everything that the spans say, to search it for secrets.
func (s *Spans) Text() string {
	var text strings.Builder
	for _, span := range s.All() {
		fmt.Fprintln(&text, span.Name, span.Attributes, span.Events, span.Status, span.Links)
	}
	return text.String()
}

// Tree returns a line for each span, indented below its parent, in the order in which they
// began. "!" marks a failed span, "?" one whose parent was not exported, and "-> name" a link.
func (s *Spans) Tree() (lines []string) {
	spans := s.All()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int {
		return cmp.Or(a.StartTime.Compare(b.StartTime), cmp.Compare(a.Name, b.Name))
	})
	exported := map[trace.SpanID]tracetest.SpanStub{}
	for _, span := range spans {
		exported[span.SpanContext.SpanID()] = span
	}
	var draw func(parent trace.SpanID, depth int)
	draw = func(parent trace.SpanID, depth int) {
		for _, span := range spans {
			if span.Parent.SpanID() == parent {
				lines = append(lines, strings.Repeat("  ", depth)+describe(span, exported))
				draw(span.SpanContext.SpanID(), depth+1)
			}
		}
	}
	draw(trace.SpanID{}, 0)
	for _, span := range spans {
		if _, ok := exported[span.Parent.SpanID()]; !ok && span.Parent.SpanID().IsValid() {
			lines = append(lines, "? "+describe(span, exported))
			draw(span.SpanContext.SpanID(), 1)
		}
	}
	return lines
}

func describe(span tracetest.SpanStub, exported map[trace.SpanID]tracetest.SpanStub) string {
	line := span.Name
	if span.Status.Code == codes.Error {
		line += " !"
	}
	for _, link := range span.Links {
		line += " -> " + exported[link.SpanContext.SpanID()].Name
	}
	return line
}
