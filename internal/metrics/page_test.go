package metrics

import (
	"net/http/httptest"
	"strings"
	"testing"
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
