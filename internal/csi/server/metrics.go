package server

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/metrics"
	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/internal/step"
)

// callMetrics count and time the calls. Volumes are not a label: their number has
// no bound.
type callMetrics struct {
	seconds    *prometheus.HistogramVec
	inFlight   prometheus.Gauge
	unfinished *unfinished
	steps      *step.Recorder
}

// newCallMetrics registers the metrics of the driver's calls and steps; the registerer
// may be nil.
func newCallMetrics(
	registerer prometheus.Registerer, driver string, tracker *progress.Tracker,
) (*callMetrics, error) {
	m := &callMetrics{
		seconds: metrics.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "holdfast_rpc_seconds",
			Help:    "Time that CSI calls took, by method and gRPC code.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120},
		}, "method", "code"),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_rpc_in_flight",
			Help: "CSI calls that are being worked on.",
		}),
		unfinished: newUnfinished(),
	}
	var err error
	if m.steps, err = step.NewRecorder(registerer, "holdfast_step_seconds",
		"Time that the steps of the driver's operations took, by step and outcome (ok, retry, failed, canceled)."); err != nil {
		return nil, err
	}
	if registerer == nil {
		return m, nil
	}
	named := prometheus.WrapRegistererWith(prometheus.Labels{"driver_name": driver}, registerer)
	for _, collector := range []prometheus.Collector{m.seconds, m.inFlight, m.unfinished, newProgressMetrics(tracker)} {
		if err := named.Register(collector); err != nil {
			return nil, fmt.Errorf("metrics of the driver: %w", err)
		}
	}
	return m, nil
}

// begin counts a call in; the returned function counts it out.
func (m *callMetrics) begin(method string, request proto.Message) func(codes.Code, time.Duration) {
	m.inFlight.Inc()
	end := m.unfinished.begin(method, request)
	return func(code codes.Code, took time.Duration) {
		m.inFlight.Dec()
		m.seconds.WithLabelValues(method, code.String()).Observe(took.Seconds())
		end(code)
	}
}
