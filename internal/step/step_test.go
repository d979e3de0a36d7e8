package step

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/metrics/metricstest"
	"github.com/holdfast-csi/holdfast/internal/tracing/tracingtest"
)

func TestOutcomeOf(t *testing.T) {
	for want, errs := range map[Outcome][]error{
		OK:       {nil},
		Retry:    {backend.ErrBusy, backend.ErrUnavailable},
		Canceled: {context.Canceled, context.DeadlineExceeded, errors.Join(backend.ErrUnavailable, context.Canceled)},
		Failed:   {backend.ErrNoSpace, backend.ErrDataLoss, errors.New("a fault")},
	} {
		for _, err := range errs {
			if err != nil {
				err = fmt.Errorf("mount volume x: %w", err)
			}
			if got := OutcomeOf(err); got != want {
				t.Errorf("%v is %s, want %s", err, got, want)
			}
		}
	}
}

func TestBegin_recordsOfTheContext(t *testing.T) {
	registry := prometheus.NewRegistry()
	recorder, err := NewRecorder(registry, "holdfast_step_seconds", "Time of steps.")
	if err != nil {
		t.Fatal(err)
	}
	ctx := With(t.Context(), recorder, "local.holdfast.dev")
	for _, err := range []error{nil, backend.ErrBusy} {
		_, end := Begin(ctx, "mount")
		end(err)
	}
	_, end := Begin(t.Context(), "unseen")
	end(nil)
	want := "step_seconds local.holdfast.dev ok mount 1\nstep_seconds local.holdfast.dev retry mount 1"
	if got := metricstest.Series(t, registry); got != want {
		t.Errorf("the series are\n%s\nwant\n%s", got, want)
	}
	if _, err := NewRecorder(registry, "holdfast_step_seconds", "Time of steps."); err == nil {
		t.Error("a name is registered twice")
	}
}

// TestBegin_hasASpanWithoutTheErrorsText: an error of a driver's step may have a secret.
func TestBegin_hasASpanWithoutTheErrorsText(t *testing.T) {
	recorder, err := NewRecorder(nil, "holdfast_step_seconds", "Time of steps.")
	if err != nil {
		t.Fatal(err)
	}
	spans := tracingtest.New()
	ctx, endCall := spans.Tracer(t).Attempt(With(t.Context(), recorder, "local.holdfast.dev"), "", "call")
	within, end := Begin(ctx, "stage")
	_, endInner := Begin(within, "mount")
	endInner(errors.New("mount with password hunter2"))
	end(nil)
	endCall(nil)
	if got, want := spans.Tree(), []string{"call", "  stage", "    mount !"}; !slices.Equal(got, want) {
		t.Errorf("the spans are %q, want %q", got, want)
	}
	if text := spans.Text(); strings.Contains(text, "hunter2") || !strings.Contains(text, string(Failed)) {
		t.Errorf("the spans say %s", text)
	}
}
