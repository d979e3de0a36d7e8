package server

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// metrics counts and times the calls. Volumes are not a label: their number has
// no bound.
type metrics struct {
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "holdfast_rpc_seconds",
			Help:    "Time that CSI calls took, by method and gRPC code.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120},
		}, []string{"method", "code"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_rpc_in_flight",
			Help: "CSI calls that are being worked on.",
		}),
	}
	if registerer == nil {
		return m, nil
	}
	for _, collector := range []prometheus.Collector{m.seconds, m.inFlight} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("metrics of the driver: %w", err)
		}
	}
	return m, nil
}

// begin counts a call in; the returned function counts it out.
func (m *metrics) begin(method string) func(codes.Code, time.Duration) {
	m.inFlight.Inc()
	return func(code codes.Code, took time.Duration) {
		m.inFlight.Dec()
		m.seconds.WithLabelValues(method, code.String()).Observe(took.Seconds())
	}
}
