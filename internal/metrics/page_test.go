package metrics

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
)

// A server gets the format that it asks for: Prometheus asks for OpenMetrics, and for
// protobuf when it takes native histograms.
func TestHandler_servesTheFormatThatIsAskedFor(t *testing.T) {
	registry := NewRegistry("v1.2.3")
	for accept, want := range map[string]string{
		"":           "text/plain",
		"text/plain": "text/plain",
		"application/openmetrics-text;version=1.0.0":                                                 "application/openmetrics-text",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited": "application/vnd.google.protobuf",
	} {
		request, answer := httptest.NewRequest("GET", "/metrics", nil), httptest.NewRecorder()
		request.Header.Set("Accept", accept)
		Handler(registry).ServeHTTP(answer, request)
		if got := answer.Header().Get("Content-Type"); !strings.HasPrefix(got, want) {
			t.Errorf("Accept %q is answered with %q", accept, got)
		}
		body := answer.Body.String()
		if !strings.Contains(body, "holdfast_build_info") || !strings.Contains(body, "v1.2.3") {
			t.Errorf("Accept %q: the version is missing", accept)
		}
		if strings.Contains(want, "openmetrics") && !strings.HasSuffix(body, "# EOF\n") {
			t.Error("the page of OpenMetrics does not end as it must")
		}
	}
}

// Prometheus takes native histograms from the protobuf format alone.
func TestHandler_servesNativeHistograms(t *testing.T) {
	registry := prometheus.NewRegistry()
	histogram := NewHistogram(prometheus.HistogramOpts{Name: "holdfast_test_seconds", Help: "Time of a test."})
	histogram.Observe(1)
	registry.MustRegister(histogram)
	request, answer := httptest.NewRequest("GET", "/metrics", nil), httptest.NewRecorder()
	request.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	Handler(registry).ServeHTTP(answer, request)
	var family dto.MetricFamily
	if err := protodelim.UnmarshalFrom(answer.Body, &family); err != nil {
		t.Fatal(err)
	}
	got := family.GetMetric()[0].GetHistogram()
	if got.GetSampleCount() != 1 || got.GetSchema() != 3 || len(got.GetPositiveSpan()) != 1 || len(got.GetBucket()) == 0 {
		t.Errorf("the histogram is %v, want native buckets of schema 3 and classic ones", got)
	}
}
