package tracing_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-csi/holdfast/internal/tracing"
	"github.com/holdfast-csi/holdfast/internal/tracing/tracingtest"
)

func TestTrace_isContinuedAndFinishedByOtherProcesses(t *testing.T) {
	spans := tracingtest.New()
	first, second, third := spans.Tracer(t), spans.Tracer(t), spans.Tracer(t)
	began := time.Now().Add(-time.Hour)
	traceparent := first.Begin("provision")
	if len(traceparent) != 55 {
		t.Errorf("the traceparent %q has %d bytes", traceparent, len(traceparent))
	}
	ctx, end := first.Attempt(t.Context(), traceparent, "attempt")
	_, endStep := tracing.Step(ctx, "call")
	endStep(errors.New("the driver is away"))
	end(errors.New("again later"))
	ctx, end = second.Attempt(t.Context(), traceparent, "attempt")
	_, endStep = tracing.Step(ctx, "call")
	endStep(nil)
	end(nil)
	third.Past(traceparent, "bind", time.Now())
	third.Finish(traceparent, "", "provision", began, nil, tracing.Volume("pv"))
	_, end = third.Linked(t.Context(), traceparent, "delete")
	end(nil)
	want := []string{"provision", "  attempt !", "    call !", "  attempt", "    call", "  bind", "delete -> provision"}
	if got := spans.Tree(); !slices.Equal(got, want) {
		t.Errorf("the tree is %q, want %q", got, want)
	}
	for _, span := range spans.All() {
		if span.Name == "provision" && (!span.StartTime.Equal(began) || span.EndTime.Before(began.Add(time.Hour))) {
			t.Errorf("the root is from %v to %v", span.StartTime, span.EndTime)
		}
	}
}

// TestTrace_offIsFree also checks that a context without a span makes none.
func TestTrace_offIsFree(t *testing.T) {
	var off *tracing.Tracer
	ctx := context.Background()
	if allocations := testing.AllocsPerRun(100, func() {
		traceparent := off.Begin("provision")
		attempt, end := off.Attempt(ctx, traceparent, "attempt")
		_, endStep := tracing.Step(attempt, "call")
		endStep(nil)
		end(nil)
		off.Past(traceparent, "bind", time.Time{})
		off.Finish(traceparent, "", "provision", time.Time{}, nil)
		if attempt != ctx || traceparent != "" {
			t.Error("a nil Tracer begins a trace")
		}
	}); allocations > 0 {
		t.Errorf("without an exporter a trace allocates %v times", allocations)
	}
	if tracing.New(nil) != nil {
		t.Error("without a provider there is a Tracer")
	}
}

func TestTrace_aTraceThatIsNotSampledIsNotExportedByAnyProcess(t *testing.T) {
	never, always := tracingtest.NewUnsampled(), tracingtest.New()
	traceparent := never.Tracer(t).Begin("provision")
	other := always.Tracer(t)
	_, end := other.Attempt(t.Context(), traceparent, "attempt")
	end(nil)
	other.Finish(traceparent, "", "provision", time.Now(), nil)
	if got := append(never.Tree(), always.Tree()...); len(got) > 0 {
		t.Errorf("exported: %q", got)
	}
}

func TestTrace_aDamagedTraceparentBeginsATraceOfItsOwn(t *testing.T) {
	for _, damaged := range []string{"", "x", "00-0-0-01", "00-00000000000000000000000000000000-0000000000000000-01"} {
		spans := tracingtest.New()
		_, end := spans.Tracer(t).Attempt(t.Context(), damaged, "attempt")
		end(nil)
		_, end = spans.Tracer(t).Linked(t.Context(), damaged, "delete")
		end(nil)
		spans.Tracer(t).Finish(damaged, damaged, "provision", time.Now(), nil)
		if got, want := spans.Tree(), []string{"attempt", "delete"}; !slices.Equal(got, want) {
			t.Errorf("%q: the tree is %q, want %q", damaged, got, want)
		}
	}
}

func TestIDs_areUniqueAndValid(t *testing.T) {
	traces, ids := map[trace.TraceID]bool{}, map[trace.SpanID]bool{}
	for range 1000 {
		traceID, id := tracing.IDs{}.NewIDs(t.Context())
		traces[traceID], ids[id] = traceID.IsValid(), id.IsValid()
	}
	if len(traces) != 1000 || len(ids) != 1000 || traces[trace.TraceID{}] || ids[trace.SpanID{}] {
		t.Errorf("%d traces, %d spans", len(traces), len(ids))
	}
}

// A driver's answer of megabytes does not make a batch too large for a collector.
func TestTrace_theTextOfAnErrorIsBounded(t *testing.T) {
	spans := tracingtest.New()
	_, end := spans.Tracer(t).Attempt(t.Context(), "", "attempt")
	end(errors.New(strings.Repeat("ä", 1<<20)))
	for _, span := range spans.All() {
		if text := span.Status.Description; len(text) > 1<<10 || len(text) < 1000 || !utf8.ValidString(text) {
			t.Errorf("the status has %d bytes", len(text))
		}
	}
}
