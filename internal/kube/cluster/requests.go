package cluster

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/transport"

	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// Measured measures the requests of clients, for Connect and NewClients. The metrics have
// the names and labels of Kubernetes' own components
// (k8s.io/component-base/metrics/prometheus/restclient), so that their dashboards and
// alerts work. The duration ends with the header of the answer, and watches have none.
func Measured(registerer prometheus.Registerer) transport.WrapperFunc {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_requests_total", Help: "Requests to the API server.",
	}, []string{"code", "method", "host"})
	seconds := metrics.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rest_client_request_duration_seconds", Help: "Duration of a request to the API server, in seconds.",
		Buckets: []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60},
	}, "verb", "host")
	registerer.MustRegister(requests, seconds)
	return func(next http.RoundTripper) http.RoundTripper {
		return &measured{next: next, requests: requests, seconds: seconds}
	}
}

// measured is a connection whose requests are measured.
type measured struct {
	next     http.RoundTripper
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// RoundTrip implements http.RoundTripper.
func (m *measured) RoundTrip(request *http.Request) (*http.Response, error) {
	began := time.Now()
	response, err := m.next.RoundTrip(request)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	m.requests.WithLabelValues(code, request.Method, request.URL.Host).Inc()
	if !request.URL.Query().Has("watch") {
		m.seconds.WithLabelValues(request.Method, request.URL.Host).Observe(time.Since(began).Seconds())
	}
	return response, err
}

// WrappedRoundTripper lets client-go reach the connection, to close it.
func (m *measured) WrappedRoundTripper() http.RoundTripper { return m.next }
