// Package step times the steps of operations. A step begins and ends here, whatever
// package it is in: the recorder travels in the context of the call.
package step

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/metrics"
	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// Outcome is how a step ended.
type Outcome string

// The outcomes of a step. Retry is a failure that a repetition of the call may end by
// itself: another call was at work, or something was not available.
const (
	OK       Outcome = "ok"
	Retry    Outcome = "retry"
	Failed   Outcome = "failed"
	Canceled Outcome = "canceled"
)

// OutcomeOf returns the outcome of a step that ended with err.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Canceled
	case errors.Is(err, backend.ErrBusy), errors.Is(err, backend.ErrUnavailable):
		return Retry
	}
	return Failed
}

// Recorder is a histogram of the times of steps.
type Recorder struct{ seconds *prometheus.HistogramVec }

// NewRecorder registers a histogram of this name with the labels driver_name, step and
// outcome. The registerer may be nil.
func NewRecorder(registerer prometheus.Registerer, name, help string) (*Recorder, error) {
	r := &Recorder{seconds: metrics.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help,
		Buckets: []float64{.001, .005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900},
	}, "driver_name", "step", "outcome")}
	if registerer == nil {
		return r, nil
	}
	if err := registerer.Register(r.seconds); err != nil {
		return nil, fmt.Errorf("metric %s: %w", name, err)
	}
	return r, nil
}

// Observe records a step that ended.
func (r *Recorder) Observe(driver, step string, outcome Outcome, took time.Duration) {
	r.seconds.WithLabelValues(driver, step, string(outcome)).Observe(took.Seconds())
}

// call is the recorder of a call and the driver that it is for.
type call struct {
	recorder *Recorder
	driver   string
}

type key struct{}

// With returns a context whose steps are recorded as those of a driver.
func With(ctx context.Context, recorder *Recorder, driver string) context.Context {
	return context.WithValue(ctx, key{}, call{recorder, driver})
}

// Begin begins a step. The caller calls end once, with the error of the step. Without a
// recorder in the context, nothing is recorded. Within a trace the step has a span, whose
// status is the outcome: the error's text may have secrets of the call.
func Begin(ctx context.Context, step string) (within context.Context, end func(error)) {
	of, ok := ctx.Value(key{}).(call)
	if !ok {
		return ctx, func(error) {}
	}
	start := time.Now()
	ctx, endSpan := tracing.Step(ctx, step)
	return ctx, func(err error) {
		outcome := OutcomeOf(err)
		of.recorder.Observe(of.driver, step, outcome, time.Since(start))
		if err != nil {
			err = errors.New(string(outcome))
		}
		endSpan(err)
	}
}
