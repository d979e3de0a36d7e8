package telemetry

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// Tracing creates spans and exports them.
type Tracing struct{ provider *sdktrace.TracerProvider }

// NewTracing sends spans over OTLP/gRPC to where OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT says (the exporter itself reads these and
// the other variables of the OpenTelemetry specification). Without either it
// returns nil, which is a Tracing that does nothing.
func NewTracing(ctx context.Context, service, version string) (*Tracing, error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil, nil
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	// The later detectors win: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
	// are the administrator's.
	described, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version)),
		resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	return &Tracing{provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithResource(described), sdktrace.WithIDGenerator(tracing.IDs{}))}, nil
}

// Provider returns the tracer provider, nil if there is none.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// Tracer begins traces; nil if there is no exporter.
func (t *Tracing) Tracer() *tracing.Tracer { return tracing.New(t.Provider()) }

// Close exports the remaining spans, until ctx ends.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}
