package server

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// callMetrics count and time calls, and have the state of each pipe. Paths and volumes are
// not labels, because their number has no bound.
type callMetrics struct {
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
	waiting  prometheus.Gauge
	pipes    *prometheus.GaugeVec
}

func newMetrics(registerer prometheus.Registerer) (*callMetrics, error) {
	m := &callMetrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "csi_proxy_calls_total", Help: "Calls that ended, by RPC and gRPC code.",
		}, []string{"rpc", "code"}),
		seconds: metrics.NewHistogramVec(prometheus.HistogramOpts{
			Name: "csi_proxy_call_seconds", Help: "Time that calls took, including the wait for other calls of the pipe.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120},
		}, "rpc"),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "csi_proxy_calls_in_flight", Help: "Operations that run, including those whose caller has left.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "csi_proxy_calls_waiting", Help: "Calls that wait on a pipe because too many run.",
		}),
		pipes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "csi_proxy_pipe_state", Help: "1 for the state that a pipe is in: served, taken by another process, or failed.",
		}, []string{"pipe", "state"}),
	}
	if registerer == nil {
		return m, nil
	}
	for _, collector := range []prometheus.Collector{m.calls, m.seconds, m.inFlight, m.waiting, m.pipes} {
		if err := registerer.Register(collector); err != nil {
			return nil, fmt.Errorf("metrics of the pipes: %w", err)
		}
	}
	return m, nil
}

func (m *callMetrics) ended(rpc string, code codes.Code, took time.Duration) {
	m.calls.WithLabelValues(rpc, code.String()).Inc()
	m.seconds.WithLabelValues(rpc).Observe(took.Seconds())
}

func (m *callMetrics) pipe(name string, now State) {
	for _, state := range []State{Served, Taken, Failed} {
		value := 0.0
		if state == now {
			value = 1
		}
		m.pipes.WithLabelValues(name, string(state)).Set(value)
	}
}
